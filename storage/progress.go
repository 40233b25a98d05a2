package storage

import "io"

// progressFunc tells how far a stage has come; it may be nil. done and total are
// bytes; total is 0 where it is not known.
type progressFunc func(stage string, done, total int64)

func (p progressFunc) report(stage string, done, total int64) {
	if p != nil {
		p(stage, done, total)
	}
}

// wrapReader reports what is read from r, at most once per progressStep bytes.
func (p progressFunc) wrapReader(stage string, total int64, r io.Reader) io.Reader {
	return &progressReader{r: r, report: p, stage: stage, total: total}
}

// progressStep keeps progress from costing more than the work.
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
