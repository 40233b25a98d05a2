package field

import "github.com/countersign-dev/countersign/events/strictjson"

// FromValue is Root for an object of a strictjson.Document. The paths of its errors are incomplete.
func FromValue(v strictjson.Value, first **Error) Object { return Object{value: v, first: first} }

// hasValue reports whether the object is read from a document and not from a tree.
func (o Object) hasValue() bool { return o.value.Exists() }

// Len is the number of members.
func (o Object) Len() int {
	if o.hasValue() {
		return o.value.Len()
	}
	return len(o.Members)
}

// Kind names the JSON type of a member, "" if it is absent.
func (o Object) Kind(key string) string {
	if o.hasValue() {
		return valueKinds[o.value.Get(key).Kind()]
	}
	if v, there := o.Members[key]; there {
		return Kind(v)
	}
	return ""
}

// Any returns a member as in the tree, nil if it is absent.
func (o Object) Any(key string) any {
	if o.hasValue() {
		return o.value.Get(key).Tree()
	}
	return o.Members[key]
}

var valueKinds = [256]string{strictjson.KindObject: KindObject, strictjson.KindArray: KindArray, strictjson.KindString: KindString,
	strictjson.KindNumber: KindNumber, strictjson.KindTrue: KindBool, strictjson.KindFalse: KindBool, strictjson.KindNull: KindNull}

// memberValue returns a member that must be of a kind.
func (o Object) memberValue(key, kind, want string) (v strictjson.Value, ok bool) {
	v = o.value.Get(key)
	if v.Exists() && valueKinds[v.Kind()] != kind {
		o.Fail(key, want)
		return v, false
	}
	return v, v.Exists()
}
