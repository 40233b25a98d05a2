package aump

import "github.com/countersign-dev/countersign/events/internal/field"

func readPrincipal(o field.Object) Principal {
	return Principal{Subject: o.Text("subject")}
}

func readAgent(o field.Object) Agent {
	return Agent{ID: o.Text("id"), Name: o.Text("name")}
}

func readPurpose(o field.Object) Purpose {
	return Purpose{
		Summary:                o.Text("summary"),
		AllowedCategories:      o.Texts("allowed_categories"),
		AllowedCounterparties:  o.Texts("allowed_counterparties"),
		ExcludedCounterparties: o.Texts("excluded_counterparties"),
	}
}

func readAuthority(o field.Object) Authority {
	return Authority{
		Mode:              o.Text("mode"),
		Budget:            readOptional(o, "budget", readBudget),
		Permissions:       o.Texts("permissions"),
		ProhibitedActions: o.Texts("prohibited_actions"),
		RequiresTrustedUI: o.Bool("requires_trusted_ui_for_commitment"),
	}
}

func readBudget(o field.Object) Budget {
	return Budget{Currency: o.Text("currency"), MaxTotal: intOrZero(o.Int("max_total_minor"))}
}

func readPreferences(o field.Object) Preferences {
	return Preferences{
		HardConstraints: readEach(o, "hard_constraints", readRule),
		SoftPreferences: readEach(o, "soft_preferences", readRule),
		PrivateNotes:    o.Texts("private_notes"),
	}
}

func readRule(o field.Object) Rule {
	return Rule{
		ID: o.Text("id"), Protected: isTrue(o.Bool("protected")),
		Field: o.Text("field"), Op: o.Text("op"), Value: o.Get("value").Tree(),
	}
}

func readNegotiation(o field.Object) Negotiation {
	return Negotiation{ProtectedFields: o.Texts("protected_fields")}
}

func readDisclosure(o field.Object) Disclosure {
	return Disclosure{
		Default:    o.Text("default"),
		Allowed:    readEach(o, "allowed", readDisclosureRule),
		Prohibited: readEach(o, "prohibited", readDisclosureRule),
	}
}

func readDisclosureRule(o field.Object) DisclosureRule {
	return DisclosureRule{Field: o.Text("field")}
}

func readEscalation(o field.Object) Escalation {
	return Escalation{
		RequiredConditions:  o.Texts("required_conditions"),
		ConfidenceThreshold: o.Number("confidence_threshold"),
		ContactModes:        o.Texts("contact_modes"),
		ApprovalTimeout:     o.Int("approval_timeout_seconds"),
	}
}

func readEvidencePolicy(o field.Object) EvidencePolicy {
	return EvidencePolicy{Retention: o.Text("retention"), EventsRequired: o.Texts("events_required")}
}

func readCompliance(o field.Object) Compliance {
	return Compliance{
		ProhibitedDecisionFactors: o.Texts("prohibited_decision_factors"),
		ReviewRequiredActions:     o.Texts("review_required_actions"),
	}
}

func readSignature(o field.Object) Signature {
	return Signature{Type: o.Text("type"), Algorithm: o.Text("alg"), KeyID: o.Text("kid"), Value: o.Text("value")}
}

func isTrue(b *bool) bool { return b != nil && *b }
