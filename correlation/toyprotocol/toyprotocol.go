// Package toyprotocol adds the toy protocol of the tests to the stage of correlation: one row in
// its table (docs/adr/0023). Only tests import it.
package toyprotocol

import (
	"testing"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/protocol"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// AddRow adds the row until the test ends. The test program must link package correlation.
func AddRow(t testing.TB) {
	t.Cleanup(protocol.Add(fact.Protocol{Token: "toy", Decode: decode, DecodesRequests: true}))
}

// decode reads an event {"was": "began"|"ran"|…, "id": event, "run": session, "no": call, "do": tool},
// or a request, which has no "was".
func decode(_ *fact.Decoder, in fact.EventMessage, r *fact.DecodedEvent) {
	var e struct {
		Was string `json:"was"`
		ID  string `json:"id"`
		Run string `json:"run"`
		No  string `json:"no"`
		Do  string `json:"do"`
	}
	if r.ReadError = strictjson.Unmarshal(in.Data, &e); r.ReadError != nil {
		return
	}
	f := &r.Fact
	f.EventID = e.ID
	f.SetCall(e.No, e.Do)
	switch {
	case in.Request:
		f.Kind = fact.KindRequest
	case e.Was == "began":
		f.Kind = fact.KindPre
	case e.Was == "ran":
		f.Kind, f.Effect, f.Outcome = fact.KindPost, fact.HadEffect, "success"
	}
	r.SetSession(in.Subject, e.Run)
}
