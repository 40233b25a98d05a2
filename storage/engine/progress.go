package engine

import "io"

// progressFunc reports the progress of a stage; it may be nil. done and total are bytes; total
// is 0 if it is not known.
type progressFunc func(stage string, done, total int64)

func (p progressFunc) report(stage string, done, total int64) {
	if p != nil {
		p(stage, done, total)
	}
}

// wrapReader reports progress on reading r, at most once per progressStep bytes.
func (p progressFunc) wrapReader(stage string, total int64, r io.Reader) io.Reader {
	return &progressReader{r: r, report: p, stage: stage, total: total}
}

// progressStep is the number of bytes between reports; it keeps their cost small.
const progressStep = 4 << 20

type progressReader struct {
	r                     io.Reader
	report                progressFunc
	stage                 string
	done, reported, total int64
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.done += int64(n)
	if p.done-p.reported >= progressStep || (err == io.EOF && p.done != p.reported) {
		p.reported = p.done
		p.report.report(p.stage, p.done, p.total)
	}
	return n, err
}
