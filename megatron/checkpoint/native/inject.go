package native

// Failing makes the save's changes of the file system fail where fail does: op is
// make, create, write, sync, close, rename to, exchange or remove. It is for fault
// injection.
func (o SaveOptions) Failing(fail func(op, path string) error) SaveOptions {
	o.fail = fail
	return o
}
