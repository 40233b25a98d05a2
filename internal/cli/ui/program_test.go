package ui

import (
	"reflect"
	"testing"
)

type grammarCmd struct {
	Deep struct{} `cmd:""`
	Flag string
}

// grammarOf keeps what is no command and the command that is named, and everything if none is.
func TestGrammarOf(t *testing.T) {
	type commands struct {
		Version bool
		One     grammarCmd `cmd:""`
		Two     grammarCmd `cmd:"" name:"second"`
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "VersionOneTwo"},
		{[]string{"--version"}, "VersionOneTwo"},
		{[]string{"--version", "one"}, "VersionOneTwo"},
		{[]string{"two"}, "VersionOneTwo"},
		{[]string{"on"}, "VersionOneTwo"},
		{[]string{"one", "second"}, "VersionOne"},
		{[]string{"second", "deep"}, "VersionTwo"},
	} {
		got, names := reflect.ValueOf(grammarOf(&commands{One: grammarCmd{Flag: "set"}}, tc.args)).Elem(), ""
		for i := range got.NumField() {
			names += got.Type().Field(i).Name
		}
		if names != tc.want {
			t.Errorf("%q: %s, want %s", tc.args, names, tc.want)
		}
		if one := got.FieldByName("One"); one.IsValid() && one.Interface().(grammarCmd).Flag != "set" {
			t.Errorf("%q: the value of a command is lost", tc.args)
		}
	}
}
