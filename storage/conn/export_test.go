package conn

import "github.com/ClickHouse/clickhouse-go/v2"

// ChangeOptions changes the options by which plain connections are made.
func ChangeOptions(p *Pool, change func(*clickhouse.Options)) {
	options := *p.options
	change(&options)
	p.options, p.database = &options, options.Auth.Database
}
