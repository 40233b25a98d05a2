package conn

import "github.com/ClickHouse/clickhouse-go/v2"

// ChangeOptions changes the options by which plain connections are made.
func ChangeOptions(p *Pool, change func(*clickhouse.Options)) {
	options := *p.options
	change(&options)
	p.options, p.database = &options, options.Auth.Database
}

// Idle is the number of kept plain connections.
func Idle(p *Pool) int { return len(p.idle.list) }

// BreakIdle ends the kept plain connections without the pool's knowledge.
func BreakIdle(p *Pool) {
	for _, c := range p.idle.list {
		_ = c.Conn.Close()
	}
}
