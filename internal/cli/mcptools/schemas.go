package mcptools

// Schemas of inputs. The members are those of AANA and AUMP, the texts are ours.
const (
	oneText      = `{"type":"object","additionalProperties":false,"required":[%q],"properties":{%[1]q:{"type":"string","minLength":1,"maxLength":256}}}`
	mandateRef   = `"mandate_ref":{"type":"object","additionalProperties":false,"required":[%s],"properties":{"id":{"type":"string","minLength":1},"hash":{"type":"string"},"version":{"type":"string"}}}`
	aanaEvent    = `{"type":"object","additionalProperties":false,"required":["tool_name","tool_category","authorization_state","evidence_refs","risk_domain","proposed_arguments","recommended_route"],"properties":{"tool_name":{"type":"string","minLength":1},"tool_category":{"enum":["public_read","private_read","write","unknown"]},"authorization_state":{"enum":["none","user_claimed","authenticated","validated","confirmed"]},"evidence_refs":{"type":"array"},"risk_domain":{"type":"string"},"proposed_arguments":{"type":"object"},"recommended_route":{"enum":["accept","ask","defer","refuse"]}}}`
	noPermission = " The answer is information: it carries no permission to run anything."
)

// Schemas of structured answers. An answer with isError has none.
const (
	texts       = `{"type":"array","items":{"type":"string"}}`
	aanaRoute   = `{"enum":["accept","ask","defer","refuse"]}`
	aanaUse     = `{"type":"object","additionalProperties":false,"required":["used","missing","contradictory"],"properties":{"used":` + texts + `,"missing":` + texts + `,"contradictory":` + texts + `}}`
	aanaAudit   = `{"type":"object","required":["audit_event_version","route","gate_decision","aix_score","hard_blockers","raw_payload_logged"],"properties":{"route":` + aanaRoute + `,"raw_payload_logged":{"const":false}}}`
	aanaAnswer  = `{"type":"object","additionalProperties":false,"required":["route","execution_allowed","gate_decision","recommended_action","aix_score","hard_blockers","missing_evidence","evidence_refs","authorization_state","recovery_suggestion","correction_recovery_suggestion","audit_event","audit_safe_log_event"],"properties":{"route":` + aanaRoute + `,"execution_allowed":{"type":"boolean"},"gate_decision":{"enum":["pass","fail"]},"recommended_action":` + aanaRoute + `,"aix_score":{"type":"number","minimum":0,"maximum":1},"hard_blockers":` + texts + `,"missing_evidence":` + texts + `,"evidence_refs":` + aanaUse + `,"authorization_state":{"enum":["none","user_claimed","authenticated","validated","confirmed","not_declared"]},"recovery_suggestion":{"type":"string"},"correction_recovery_suggestion":{"type":"string"},"audit_event":` + aanaAudit + `,"audit_safe_log_event":` + aanaAudit + `,"approval":{"type":"object","required":["required","status","workflow_id","expires_at"],"properties":{"workflow_id":{"type":"string"}}}}}`
	aumpAnswer  = `{"type":"object","required":["mandate_ref","decision","reason_codes"],"properties":{"mandate_ref":{"type":"object","required":["id","hash"]},"decision":{"type":"string","enum":["allowed","requires_escalation","denied"]},"reason_codes":{"type":"array","items":{"type":"string"}},"paths":{"type":"array","items":{"type":"string"}},"summary":{"type":"string"},"required_escalation":{"type":"object"}}}`
	aumpMandate = `{"type":"object","additionalProperties":false,"required":["id","hash","state","in_force"],"properties":{"id":{"type":"string"},"hash":{"type":"string"},"state":{"type":"string"},"in_force":{"type":"boolean"}}}`
	aumpStored  = `{"type":"object","additionalProperties":false,"required":["stored"],"properties":{"stored":{"const":1}}}`
	aumpRevoked = `{"type":"object","additionalProperties":false,"required":["code","revocation"],"properties":{"code":{"const":"ok"},"revocation":{"type":"object"}}}`
	onRecord    = `{"type":"object","additionalProperties":false,"required":["records"],"properties":{"records":{"type":"array","items":{"type":"object"}}}}`
)
