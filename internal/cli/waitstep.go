package cli

import "github.com/tutti-project/tutti"

// waitView shows steps that wait for something outside Puppet.
type waitView struct{ nodesView }

// Wait implements tutti.StepTable.
func (stepViews) Wait() stepView { return waitView{} }

func (waitView) waits(s tutti.Step) string { return s.Wait.Subject() }

func (waitView) ended() string { return "there" }
