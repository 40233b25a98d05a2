package correlation

import "time"

// deadline is when a call counts as abandoned. A deadline that is no longer the
// call's own is stale.
type deadline struct {
	at   time.Time
	call *call
}

func (d deadline) isStale() bool { return !d.call.isOpen() || !d.call.deadline.Equal(d.at) }

// deadlines is a heap: the next deadline first, among equals the older call. No
// two are equal in both, so that the order in which they come out does not depend
// on how they lie in it.
type deadlines []deadline

func (d deadlines) less(i, j int) bool {
	if d[i].at.Equal(d[j].at) {
		return d[i].call.order < d[j].call.order
	}
	return d[i].at.Before(d[j].at)
}

func (d deadlines) siftUp(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !d.less(i, parent) {
			return
		}
		d[i], d[parent] = d[parent], d[i]
		i = parent
	}
}

func (d deadlines) siftDown(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(d); child++ {
			if d.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		d[i], d[least] = d[least], d[i]
		i = least
	}
}

func (d deadlines) init() {
	for i := len(d)/2 - 1; i >= 0; i-- {
		d.siftDown(i)
	}
}

// pop takes the first one away.
func (d *deadlines) pop() {
	list := *d
	last := len(list) - 1
	list[0] = list[last]
	list[last] = deadline{}
	*d = list[:last]
	(*d).siftDown(0)
}

// next is the next deadline that counts; it drops stale ones on the way.
func (d *deadlines) next() (deadline, bool) {
	for len(*d) > 0 {
		if top := (*d)[0]; !top.isStale() {
			return top, true
		}
		d.pop()
	}
	return deadline{}, false
}

// popDue takes the next deadline if it has been reached.
func (d *deadlines) popDue(now time.Time) (*call, bool) {
	top, ok := d.next()
	if !ok || now.Before(top.at) {
		return nil, false
	}
	d.pop()
	return top.call, true
}

// set gives a call a deadline; it never brings one forward.
func (d *deadlines) set(c *call, at time.Time) {
	if !at.After(c.deadline) {
		return
	}
	c.deadline = at
	*d = append(*d, deadline{at: at, call: c})
	d.siftUp(len(*d) - 1)
}
