package field

import "github.com/countersign-dev/countersign/events/strictjson"

// Flat is Root for a document that was read flat. The paths of its errors are not
// whole.
func Flat(v strictjson.Value, first **Error) Object { return Object{flat: v, first: first} }

// IsFlat tells whether the object was read flat.
func (o Object) IsFlat() bool { return o.flat.Exists() }

// Len is how many members an object has.
func (o Object) Len() int {
	if o.IsFlat() {
		return o.flat.Len()
	}
	return len(o.Members)
}

// Kind names the JSON type of a member, "" if it is not there.
func (o Object) Kind(key string) string {
	if o.IsFlat() {
		return flatKinds[o.flat.Get(key).Kind()]
	}
	if v, there := o.Members[key]; there {
		return Kind(v)
	}
	return ""
}

// Any is a member as it stands in the tree, nil if it is not there.
func (o Object) Any(key string) any {
	if o.IsFlat() {
		return o.flat.Get(key).Tree()
	}
	return o.Members[key]
}

var flatKinds = [256]string{strictjson.KindObject: KindObject, strictjson.KindArray: KindArray, strictjson.KindString: KindString,
	strictjson.KindNumber: KindNumber, strictjson.KindTrue: KindBool, strictjson.KindFalse: KindBool, strictjson.KindNull: KindNull}

// flatMember finds a member that must be of a kind.
func (o Object) flatMember(key, kind, want string) (v strictjson.Value, ok bool) {
	v = o.flat.Get(key)
	if v.Exists() && flatKinds[v.Kind()] != kind {
		o.Fail(key, want)
		return v, false
	}
	return v, v.Exists()
}
