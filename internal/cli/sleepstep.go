package cli

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

// sleepView shows steps that only wait for some time.
type sleepView struct{ nodesView }

// Sleep implements tutti.StepTable.
func (stepViews) Sleep() stepView { return sleepView{} }

func (sleepView) waits(s tutti.Step) string { return fleet.Duration(s.Sleep.For) + " to pass" }
