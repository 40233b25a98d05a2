package checks

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// eventChecks are the checks of one message: 2.A and 2.B.
var eventChecks = []catalogue.Check{
	specification.Check("001", "3.8, 3.9, 11.3.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "bytes", "A message is not one JSON object in UTF-8.", catalogue.FixEnvelope),
	specification.Check("002", "3.2", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "An envelope field that every event must have is missing.", catalogue.FixEnvelope),
	specification.Check("003", "3.2.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The context does not begin with AAEP's own.", catalogue.FixEnvelope),
	specification.Check("004", "3.2.2", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The type names no vocabulary.", catalogue.FixEnvelope),
	specification.Check("005", "3.2.2, 3.11.3", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The type is in AAEP's closed namespace and none of its twelve.", catalogue.FixEnvelope),
	specification.Check("006", "3.9, 7.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The type is of a vocabulary that no context declares; a context that is not registered is taken to declare it.", catalogue.FixEnvelope),
	specification.Check("007", "3.2.3", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The event id has not the form that AAEP gives it.", catalogue.FixEnvelope),
	specification.Check("008", "3.2.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The session id has not the form that AAEP gives it.", catalogue.FixEnvelope),
	specification.Check("009", "3.2.5", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The time stamp is none, has no zone, or has other than three or six fraction digits.", catalogue.FixEnvelope),
	specification.Check("010", "3.2.6", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The producer is not described as AAEP wants it.", catalogue.FixEnvelope),
	specification.Check("011", "3.2.6.1", catalogue.Must, events.SeverityLow, catalogue.ScopeEvent, "event", "The agent id has a version in it.", "Keep the version in agent_version; the id stays over all versions."),
	specification.Check("012", "3.3", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "Verbosity or urgency is a word that does not exist.", catalogue.FixEnvelope),
	specification.Check("013", "11.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The localization hints have not the form that AAEP gives them.", catalogue.FixEnvelope),
	specification.Check("014", "11.1", catalogue.Must, events.SeverityInfo, catalogue.ScopeEvent, "event; said once a session", "Texts come without a word on what language they are in.", fixText),
	specification.Check("015", "3.4.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The sequence number is not a whole number from zero.", catalogue.FixEnvelope),
	specification.Check("016", "3.4.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The AAEP version is none that Countersign knows.", catalogue.FixEnvelope),
	specification.Check("017", "3.4.2", catalogue.Derived, events.SeverityMedium, catalogue.ScopeEvent, "event", "The correlation id is not a text.", catalogue.FixEnvelope),
	specification.Check("018", "3.4.3, 7.3.2, 3.11.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "An extension is no object, or its prefix is reserved or not declared.", catalogue.FixEnvelope),
	specification.Check("019", "3.5, 2.2.6, 7.2, 3.11.5", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The event has a top-level field that AAEP does not know.", "Move custom fields below extensions, under a prefix of your own."),
	specification.Check("020", "3.7", catalogue.Should, events.SeverityLow, catalogue.ScopeEvent, "bytes", "The event is larger, deeper or wider than AAEP recommends.", "Send long texts and contexts by reference."),
	specification.Check("021", "3.8", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "bytes", "A number is beyond what every reader can hold exactly.", "Write large integers as text."),
	specification.Check("022", "RFC 8259", catalogue.Derived, events.SeverityMedium, catalogue.ScopeEvent, "bytes", "A key is there twice, or twice but for case: readers will differ on what was said.", catalogue.FixEnvelope),
	specification.Undecidable("023", "3.9", catalogue.Must, catalogue.ScopeEndpoint, "own pipeline", "An event counts as valid although not all nine steps were taken.", "How another receiver validates is not on the log. The correlator takes all nine steps: C-001, C-002 to C-019, C-030."),
	specification.Check("024", "5, 6.3.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "message", "A reply or subscription message has not the form that AAEP gives it.", catalogue.FixEnvelope),

	specification.Check("030", "4, 9.3.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "The payload does not follow the schema of its type.", catalogue.FixEnvelope),
	specification.Check("031", "4.1.3, 4.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "An event that must be critical does not say so.", "Write urgency critical on errors, questions and handoffs."),
	specification.Check("032", "6.4.1, 4.4.1", catalogue.Must, events.SeverityHigh, catalogue.ScopeEvent, "event", "What cannot be undone would be done if no answer comes.", "Make reject the default of irreversible actions."),
	specification.Check("033", "6.4.1", catalogue.Should, events.SeverityLow, catalogue.ScopeEvent, "event", "Silence would count as a yes for something irreversible or risky.", "Make reject the default."),
	specification.Check("034", "4.4.2", catalogue.Derived, events.SeverityMedium, catalogue.ScopeEvent, "event", "A choice is offered without choices, or with the same one twice.", catalogue.FixEnvelope),
	specification.Check("035", "6.5.2", catalogue.Derived, events.SeverityLow, catalogue.ScopeEvent, "event", "The default response is none of the answers that are accepted.", fixText),
	specification.Check("036", "4.2.2", catalogue.Derived, events.SeverityMedium, catalogue.ScopeEvent, "event", "The step lies beyond the number of steps.", fixText),
	specification.Check("037", "4.3.2", catalogue.Should, events.SeverityLow, catalogue.ScopeEvent, "event", "A tool failed or timed out without an error message.", fixText),
	specification.Check("038", "4.3.1, 10.2, 10.5", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event; credentials in the forms of their issuers, personal data is not looked for", "A secret stands in an event that people read.", catalogue.FixSecret),
	specification.Check("039", "4.4.1", catalogue.Derived, events.SeverityLow, catalogue.ScopeEvent, "event", "Replies are allowed that no reply can ever give.", "Allow accept and reject only."),
	specification.Check("040", "6.4.2", catalogue.Should, events.SeverityInfo, catalogue.ScopeEvent, "event", "The time to answer lies outside the recommended range.", "Give people neither too little nor too much time."),
	specification.Check("041", "9.3.1", catalogue.Must, events.SeverityInfo, catalogue.ScopeEvent, "event; said once a session", "An event that people will hear has no normal summary.", fixText),
	specification.Check("042", "11.3.2, 11.3.3", catalogue.Should, events.SeverityLow, catalogue.ScopeEvent, "texts of the event; their normalisation form is not looked at", "A text begins with a combining mark that has nothing to combine with.", fixText),
}
