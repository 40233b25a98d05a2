package functions

import "strings"

// Patch is the files of a patch.
type Patch struct {
	Known bool   `cel:"known"` // it is a patch of a known form, and names at least one file
	Files []File `cel:"files"`
}

// File is a file that a patch changes.
type File struct {
	Path   string `cel:"path"`
	Action string `cel:"action"` // add, update, delete or move
}

// Size implements Sized.
func (p Patch) Size() int64 {
	n := int64(64)
	for _, f := range p.Files {
		n += int64(len(f.Path)) + 64
	}
	return n
}

// Bounds of one patch.
const (
	maxPatch      = 1 << 20
	maxPatchFiles = 1024
)

// patchMarks are the lines that name a file: of unified diffs, of git, and of the patches of coding
// agents (*** Begin Patch).
var patchMarks = []struct{ prefix, action string }{
	{"*** Add File: ", "add"}, {"*** Update File: ", "update"}, {"*** Delete File: ", "delete"}, {"*** Move to: ", "move"},
	{"--- ", "update"}, {"+++ ", "update"}, {"rename from ", "move"}, {"rename to ", "move"}, {"copy from ", "update"}, {"copy to ", "add"},
	{"Index: ", "update"},
}

// ParsePatch lists the files of a patch. A line that looks like one that names a file counts, even in
// the middle of a hunk: more files are listed rather than fewer. A path of a unified diff with the
// first name a or b is listed with it and without it.
func ParsePatch(s string) Patch {
	out := Patch{Files: []File{}}
	if len(s) > maxPatch || strings.ContainsRune(s, 0) {
		return out
	}
	out.Known = true
	seen := map[File]bool{}
	add := func(path, action string) {
		if f := (File{path, action}); !seen[f] {
			seen[f] = true
			out.Files = append(out.Files, f)
		}
	}
	for line := range strings.SplitSeq(s, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if rest, ok := strings.CutPrefix(line, "diff --git "); ok && strings.Contains(rest, "\"") {
			out.Known = false
		}
		for _, m := range patchMarks {
			name, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), m.prefix)
			if !ok {
				continue
			}
			name, _, _ = strings.Cut(name, "\t") // of a time
			if name = strings.TrimSpace(name); name == "/dev/null" {
				continue
			}
			if name == "" || name[0] == '"' || len(out.Files) >= maxPatchFiles {
				out.Known = false
				continue
			}
			add(name, m.action)
			if m.prefix == "--- " || m.prefix == "+++ " {
				if short := strings.TrimPrefix(strings.TrimPrefix(name, "a/"), "b/"); short != name {
					add(short, m.action)
				}
			}
		}
	}
	out.Known = out.Known && len(out.Files) > 0
	return out
}
