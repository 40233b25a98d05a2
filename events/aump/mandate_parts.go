package aump

import "github.com/countersign-dev/countersign/events/internal/field"

func readPrincipal(o field.Object) Principal {
	return Principal{
		Type: o.Text("type"), DisplayName: o.Text("display_name"),
		Subject: o.Text("subject"), Jurisdiction: o.Text("jurisdiction"),
	}
}

func readAgent(o field.Object) Agent {
	return Agent{
		ID: o.Text("id"), Name: o.Text("name"), Provider: o.Text("provider"), Model: o.Text("model"),
		A2AAgentCardURL: o.Text("a2a_agent_card_url"), MCPClientID: o.Text("mcp_client_id"),
	}
}

func readPurpose(o field.Object) Purpose {
	return Purpose{
		Summary: o.Text("summary"), Domain: o.Text("domain"), Intent: o.Text("intent"),
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
	return Budget{
		Currency: o.Text("currency"), MaxTotal: intOrZero(o.Int("max_total_minor")),
		MaxItem: o.Int("max_item_minor"), MaxShipping: o.Int("max_shipping_minor"),
	}
}

func readPreferences(o field.Object) Preferences {
	return Preferences{
		HardConstraints:       readEach(o, "hard_constraints", readRule),
		SoftPreferences:       readEach(o, "soft_preferences", readRule),
		RankedNeeds:           o.Texts("ranked_needs"),
		AcceptableSubstitutes: o.Texts("acceptable_substitutes"),
		Dealbreakers:          o.Texts("dealbreakers"),
		PrivateNotes:          o.Texts("private_notes"),
	}
}

func readRule(o field.Object) Rule {
	return Rule{
		ID: o.Text("id"), Description: o.Text("description"), Weight: o.Number("weight"), Protected: isTrue(o.Bool("protected")),
		Field: o.Text("field"), Op: o.Text("op"), Value: o.Get("value").Tree(),
	}
}

func readNegotiation(o field.Object) Negotiation {
	return Negotiation{
		Strategy: o.Text("strategy"), CommunicationStyle: o.Text("communication_style"), ConcessionPolicy: o.Text("concession_policy"),
		TargetPrice: o.Int("target_price_minor"), ReservationPrice: o.Int("reservation_price_minor"),
		OpeningOffer: o.Int("opening_offer_minor"), MaxRounds: intOrZero(o.Int("max_rounds")),
		BundleAllowed: isTrue(o.Bool("bundle_allowed")), TradeAllowed: isTrue(o.Bool("trade_allowed")),
		WalkAwayConditions: o.Texts("walk_away_conditions"), ProtectedFields: o.Texts("protected_fields"),
	}
}

func readDisclosure(o field.Object) Disclosure {
	return Disclosure{
		Default:       o.Text("default"),
		Allowed:       readEach(o, "allowed", readDisclosureRule),
		Prohibited:    readEach(o, "prohibited", readDisclosureRule),
		PublicSummary: o.Text("public_summary"),
	}
}

func readDisclosureRule(o field.Object) DisclosureRule {
	return DisclosureRule{Field: o.Text("field"), Condition: o.Text("condition"), CounterpartyScope: o.Text("counterparty_scope")}
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
	return EvidencePolicy{
		Retention: o.Text("retention"), EventsRequired: o.Texts("events_required"),
		TranscriptHashAlg: o.Text("transcript_hash_alg"), StorePrivateFields: isTrue(o.Bool("store_private_fields")),
	}
}

func readCompliance(o field.Object) Compliance {
	return Compliance{
		ProhibitedDecisionFactors: o.Texts("prohibited_decision_factors"),
		ReviewRequiredActions:     o.Texts("review_required_actions"),
		RequiredEvidenceEvents:    o.Texts("required_evidence_events"),
	}
}

func readSignature(o field.Object) Signature {
	return Signature{Type: o.Text("type"), Algorithm: o.Text("alg"), KeyID: o.Text("kid"), Value: o.Text("value")}
}

func readLink(o field.Object) Link {
	return Link{Type: o.Text("type"), URL: o.Text("url"), Title: o.Text("title")}
}

func isTrue(b *bool) bool { return b != nil && *b }
