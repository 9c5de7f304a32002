package cli

// Run implements tutti.StepTable.
func (stepViews) Run() stepView { return nodesView{} }
