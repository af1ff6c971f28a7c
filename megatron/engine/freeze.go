package engine

// freeze marks the rank's own.
func (e *Engine) freeze() error {
	if len(e.config.FreezeParameters) == 0 && len(e.config.Model.Adapters) == 0 {
		return nil
	}
	if _, err := e.config.Freezing(); err != nil {
		return err
	}
	for _, p := range e.Params {
		p.Frozen = e.config.Freezes(p.Name)
	}
	return nil
}
