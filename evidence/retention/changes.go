package retention

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// PlaceHold adds a hold. It does not stop an erasure that has begun; BegunErasures lists those.
func (s State) PlaceHold(h Hold) (State, error) {
	if err := errors.Join(h.Note.validate(), h.Scope.validate()); err != nil {
		return s, err
	}
	if h.Seqs != "" {
		return s, fmt.Errorf("%w: a hold is on a session, a subject or the tenant", ErrInvalid)
	}
	if len(s.Holds) >= MaxHolds {
		return s, ErrFull
	}
	s.Holds = append(slices.Clone(s.Holds), h)
	s.Last = Change{"hold", h.Scope, h.Note}
	return s, nil
}

// ReleaseHold removes the hold with the id n.ID. n records the person, time and reason.
func (s State) ReleaseHold(n Note) (State, error) {
	if err := n.validate(); err != nil {
		return s, err
	}
	i := slices.IndexFunc(s.Holds, func(h Hold) bool { return h.ID == n.ID })
	if i < 0 {
		return s, fmt.Errorf("%w: hold %q", ErrUnknown, n.ID)
	}
	s.Last = Change{"release", s.Holds[i].Scope, n}
	s.Holds = slices.Delete(slices.Clone(s.Holds), i, i+1)
	return s, nil
}

// RequestErasure adds an order, unless there is a hold on the same scope or on the tenant. Whether
// another hold reaches the order can be told only from the evidence: see BlockingHold.
func (s State) RequestErasure(o Order) (State, error) {
	if err := errors.Join(o.Note.validate(), o.Scope.validate()); err != nil {
		return s, err
	}
	if (o.Scope == (Scope{})) != o.ByPolicy() || o.Expire != "" && len(o.Sessions) == 0 || len(o.Sessions) > MaxBatch || o.IdleSeconds < 0 {
		return s, fmt.Errorf("%w: an erasure is about one session, one subject, some messages without a session or what a policy lets go", ErrInvalid)
	}
	for _, h := range s.Holds {
		if h.Scope == (Scope{}) || h.Scope == o.Scope {
			return s, &HeldError{h}
		}
	}
	s.Orders = dropOldOrders(slices.Clone(s.Orders))
	if len(s.Orders) >= maxOrders {
		return s, ErrFull
	}
	o.Status = Ordered
	s.Orders = append(s.Orders, o)
	s.Last = Change{"order", o.Scope, o.Note}
	return s, nil
}

// dropOldOrders removes ended orders, the oldest first, while the list is more than half full.
func dropOldOrders(list []Order) []Order {
	for len(list) >= maxOrders/2 {
		i := slices.IndexFunc(list, func(o Order) bool { return !o.Status.Open() })
		if i < 0 {
			break
		}
		list = slices.Delete(list, i, i+1)
	}
	return list
}

// HeldError names the hold that blocks an erasure, but not the data subject of the hold: the text
// can become an order's Problem, which the log keeps for ever.
type HeldError struct{ Hold Hold }

func (e *HeldError) Error() string {
	h := e.Hold
	return fmt.Sprintf("legal hold %s on %s stands, placed by %s at %s: %s", h.ID, h.Scope.Unnamed(), h.By, h.At, h.Reason)
}

// Is makes every HeldError an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// BlockingHold returns the first hold that reaches any of the sessions or the data subject of an
// erasure, or nil. names reports whether a session's records name a data subject.
func (s State) BlockingHold(sessions []string, subject string, names func(session, subject string) bool) *Hold {
	for i, h := range s.Holds {
		reached := h.Scope == (Scope{}) || h.Subject != "" && h.Subject == subject
		for _, session := range sessions {
			reached = reached || h.Session != "" && h.Session == session || h.Subject != "" && names(session, h.Subject)
		}
		if reached {
			return &s.Holds[i]
		}
	}
	return nil
}

// BegunErasures lists the begun erasures that are, or may be, in the scope of a hold.
func (s State) BegunErasures(h Hold) (list []Order) {
	for _, o := range s.Orders {
		if o.Status == Begun && (h.Scope == (Scope{}) || h.Scope == o.Scope || h.Subject != "" || o.Subject != "") {
			list = append(list, o)
		}
	}
	return list
}

// FindOrder returns the order with an id.
func (s State) FindOrder(id string) (Order, bool) {
	i := slices.IndexFunc(s.Orders, func(o Order) bool { return o.ID == id })
	if i < 0 {
		return Order{}, false
	}
	return s.Orders[i], true
}

// BeginOrder marks an order as begun; it is irrevocable then. An order for a data subject keeps
// what is planned.
func (s State) BeginOrder(id string, planned Planned, at time.Time) (State, error) {
	return s.changeStatus(id, "begin", at, Ordered, func(o *Order) {
		o.Status, o.Problem = Begun, ""
		if o.Subject != "" {
			o.Planned = &planned
		}
	})
}

// RefuseOrder ends an order that has not begun. It removes the data subject from the order.
func (s State) RefuseOrder(id, why string, at time.Time) (State, error) {
	return s.changeStatus(id, "refuse", at, Ordered, func(o *Order) {
		o.Status, o.Problem, o.EndedAt = Refused, why, events.At(at)
		o.Subject = ""
	})
}

// FinishOrder ends an order that was carried out. It removes the data subject from the order.
func (s State) FinishOrder(id string, r Result, at time.Time) (State, error) {
	return s.changeStatus(id, "finish", at, Begun, func(o *Order) {
		o.Status, o.Result, o.EndedAt, o.Problem = Done, &r, events.At(at), ""
		o.Subject = ""
	})
}

func (s State) changeStatus(id, what string, at time.Time, from Status, do func(*Order)) (State, error) {
	i := slices.IndexFunc(s.Orders, func(o Order) bool { return o.ID == id })
	switch {
	case i < 0:
		return s, fmt.Errorf("%w: erasure %q", ErrUnknown, id)
	case s.Orders[i].Status != from:
		return s, fmt.Errorf("%w: erasure %q is %s", ErrBegun, id, s.Orders[i].Status)
	}
	s.Orders = slices.Clone(s.Orders)
	do(&s.Orders[i])
	o := s.Orders[i]
	if !o.Status.Open() {
		s.Orders[i].Sessions, s.Orders[i].Planned = nil, nil // the log has them
	}
	n := o.Note
	n.At = events.At(at)
	s.Last = Change{what, o.Scope, n}
	return s, nil
}
