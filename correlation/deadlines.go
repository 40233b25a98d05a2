package correlation

import (
	"container/heap"
	"time"
)

// deadline is when a call counts as abandoned. A deadline that is no longer the
// call's own is stale.
type deadline struct {
	at   time.Time
	call *call
}

func (d deadline) stale() bool { return !d.call.open() || !d.call.deadline.Equal(d.at) }

// deadlines is a heap: the next deadline first, among equals the older call.
type deadlines []deadline

func (d deadlines) Len() int { return len(d) }
func (d deadlines) Less(i, j int) bool {
	if d[i].at.Equal(d[j].at) {
		return d[i].call.order < d[j].call.order
	}
	return d[i].at.Before(d[j].at)
}
func (d deadlines) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(x any)   { *d = append(*d, x.(deadline)) }
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = deadline{}
	*d = (*d)[:last]
	return x
}

// next is the next deadline that counts; it drops stale ones on the way.
func (d *deadlines) next() (deadline, bool) {
	for d.Len() > 0 {
		if top := (*d)[0]; !top.stale() {
			return top, true
		}
		heap.Pop(d)
	}
	return deadline{}, false
}

// due takes the next deadline if it has been reached.
func (d *deadlines) due(now time.Time) (*call, bool) {
	top, ok := d.next()
	if !ok || now.Before(top.at) {
		return nil, false
	}
	heap.Pop(d)
	return top.call, true
}

// set gives a call a deadline; it never brings one forward.
func (d *deadlines) set(c *call, at time.Time) {
	if !at.After(c.deadline) {
		return
	}
	c.deadline = at
	heap.Push(d, deadline{at: at, call: c})
}
