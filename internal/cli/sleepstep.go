package cli

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

// sleepView is for steps that let some time pass.
type sleepView struct{ nodesView }

// Sleep implements tutti.StepTable.
func (stepViews) Sleep() stepView { return sleepView{} }

func (sleepView) waits(s tutti.Step) string { return fleet.Duration(s.Sleep.For) + " to pass" }
