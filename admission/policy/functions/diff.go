package functions

import (
	"cmp"
	"slices"
	"strings"
)

// Patch is the files of a patch.
type Patch struct {
	Known bool   `cel:"known"` // it is a patch of a known form, and names at least one file
	Files []File `cel:"files"`
}

// File is a file that a patch changes.
type File struct {
	Path   string `cel:"path"`   // as the patch has it; of a unified diff with and without a first directory a or b
	Action string `cel:"action"` // add, update, delete or move; a file of a unified diff is listed as updated, and one that is added or deleted once more as that
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

// patchMark is the beginning of a line that names a file, and what becomes of the file.
type patchMark struct{ prefix, action string }

// patchMarks are the lines that name a file: of unified diffs, of git, and of the patches of coding
// agents (*** Begin Patch).
var patchMarks = []patchMark{
	{"*** Add File: ", "add"}, {"*** Update File: ", "update"}, {"*** Delete File: ", "delete"}, {"*** Move to: ", "move"},
	{"--- ", "update"}, {"+++ ", "update"}, {"rename from ", "move"}, {"rename to ", "move"}, {"copy from ", "update"}, {"copy to ", "add"},
	{"Index:", "update"},
}

// maxHeader is the longest first line of a file in a patch of git.
const maxHeader = 8192

// parsePatch lists the files of a patch. Every line that looks like the name of a file counts, even in
// the middle of a hunk, so the list has too many files rather than too few. A path of a unified diff that
// begins with the directory a or b is listed with and without that directory. In a patch of git the first
// line names a file that has no hunk: an empty one, a binary one, one with a change of mode.
func parsePatch(s string) Patch {
	r := patchReader{Patch: Patch{Known: true, Files: []File{}}, seen: map[File]bool{}}
	if len(s) > maxPatch || strings.ContainsRune(s, 0) {
		r.Known = false
		return r.Patch
	}
	for line := range strings.SplitSeq(s, "\n") {
		r.checkFrame(strings.TrimRight(line, " \t\r"))
		line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), " \t")
		switch rest, both := cutEither(line, "diff --git ", "Binary files "); both {
		case "diff --git ":
			r.readHeader(rest)
		case "Binary files ":
			r.readBinary(rest)
		default:
			r.readMode(line)
			r.readMark(line)
		}
	}
	r.endFile()
	r.Known = r.Known && len(r.Files) > 0
	return r.Patch
}

// frames are the lines of coding agents' patches, besides those that name a file.
var frames = []string{"*** Begin Patch", "*** End Patch", "*** End of File"}

// checkFrame makes a patch unknown that has another line of that form, such as one that names the machine to
// work on, or a text before its begin, such as a command.
func (r *patchReader) checkFrame(line string) {
	if line == frames[0] {
		r.Known = r.Known && !r.text
	}
	r.text = r.text || line != ""
	if strings.HasPrefix(line, "***") && !slices.Contains(frames, line) && !slices.ContainsFunc(patchMarks, func(m patchMark) bool { return strings.HasPrefix(line, m.prefix) }) {
		r.Known = false
	}
}

func cutEither(line string, prefixes ...string) (rest, prefix string) {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(line, p); ok {
			return rest, p
		}
	}
	return line, ""
}

// patchReader reads a patch line by line.
type patchReader struct {
	Patch
	seen    map[File]bool
	text    bool // a line that is not empty was read
	unnamed bool // the last first line of git's did not name its file, and no other line has yet
	made    bool // the last line with a former name says that there was no such file

	former []string // the names in the last line with a former name, or in a first line of git's
}

// add lists a file. One of a unified diff is listed without a first name a or b as well.
func (r *patchReader) add(path, action string, unified bool) {
	if path == "/dev/null" {
		return
	}
	if path == "" || path[0] == '"' || len(r.Files) >= maxPatchFiles {
		r.Known = false
		return
	}
	if f := (File{path, action}); !r.seen[f] {
		r.seen[f] = true
		r.Files = append(r.Files, f)
	}
	if short := strings.TrimPrefix(strings.TrimPrefix(path, "a/"), "b/"); unified && short != path {
		r.add(short, action, false)
	}
}

func (r *patchReader) endFile() {
	r.Known = r.Known && !r.unnamed
	r.unnamed = false
}

// readHeader reads the first line of a file in a patch of git. The names in it are two times the same one
// but for their first directory, or other lines give them.
func (r *patchReader) readHeader(rest string) {
	r.endFile()
	if len(rest) > maxHeader || strings.Contains(rest, "\"") {
		r.Known = false
		return
	}
	r.unnamed, r.made, r.former = true, false, nil
	for i := range len(rest) {
		if rest[i] != ' ' || i == 0 || i+1 == len(rest) {
			continue
		}
		before, after := rest[:i], rest[i+1:]
		_, one, _ := strings.Cut(before, "/")
		_, two, _ := strings.Cut(after, "/")
		if before == after || one == two && one != "" {
			r.unnamed, r.former = false, append(r.former, before, after, cmp.Or(two, after))
		}
	}
	if !r.unnamed {
		r.addAll("update")
	}
}

// addAll lists the files of the last line with a former name.
func (r *patchReader) addAll(action string) {
	r.Known = r.Known && len(r.former) > 0
	for _, name := range r.former {
		r.add(name, action, true)
	}
}

// endFormer lists what becomes of the files of the last line with a former name, once.
func (r *patchReader) endFormer(action string) {
	r.addAll(action)
	r.former = nil
}

// readMode reads a line of git's that says that the file of the line before is new, or deleted.
func (r *patchReader) readMode(line string) {
	switch {
	case strings.HasPrefix(line, "new file mode "):
		r.endFormer("add")
	case strings.HasPrefix(line, "deleted file mode "):
		r.endFormer("delete")
	}
}

// readBinary reads the line for a binary file that a patch does not hold.
func (r *patchReader) readBinary(rest string) {
	names, ends := strings.CutSuffix(rest, " differ")
	before, after, two := strings.Cut(names, " and ")
	if !ends || !two || strings.Contains(after, " and ") {
		r.Known = false
		return
	}
	r.readNames(before, "", false)
	r.readNames(after, "", true)
}

// readNames reads the former or the new name of a file in a unified diff, with the date behind it. Where there is no
// file, the name is that of the null device, or the date is the beginning of time.
func (r *patchReader) readNames(name, date string, isNew bool) {
	names := []string{name}
	if first, _, more := strings.Cut(name, " "); more && date == "" {
		names = []string{first, name} // GNU patch ends a name at a blank if no tab ends it
	}
	none := name == "/dev/null" || strings.Contains(date, "1970-01-01") || strings.Contains(date, "1969-12-31")
	if r.unnamed = false; !isNew {
		r.made, r.former = none, names
	} else if none {
		r.endFormer("delete")
	}
	for _, n := range names {
		if r.add(n, "update", true); isNew && r.made {
			r.add(n, "add", true)
		}
	}
}

// readMark reads a line that names one file.
func (r *patchReader) readMark(line string) {
	for _, m := range patchMarks {
		name, ok := strings.CutPrefix(line, m.prefix)
		if !ok {
			continue
		}
		name, date, dated := strings.Cut(name, "\t")
		name = strings.TrimSpace(name)
		if m.prefix == "--- " || m.prefix == "+++ " {
			r.readNames(name, date, m.prefix == "+++ ")
			continue
		}
		if first, _, more := strings.Cut(name, " "); more && !dated && m.prefix == "Index:" {
			r.add(first, m.action, false)
		}
		r.unnamed = false
		r.add(name, m.action, false)
	}
}
