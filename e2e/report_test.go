//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/tutti-project/tutti"
)

// TestUnreadableReport puts what is no report where the run's report belongs,
// after a run that was good.
func TestUnreadableReport(t *testing.T) {
	push(t, oneNode, "notify { 'good': }\n")
	execute(t, "one", tutti.ModeApply)
	push(t, oneNode, `
		$run = generate('/bin/sh', '-c', 'printf %s "$(ls -td /var/lib/tutti/agent/runs/* | head -1)"')
		notify { 'good': }
		exec { "/bin/mkdir ${run}/report.json": }
	`)
	j := execute(t, "one", tutti.ModeApply)
	j.expect(j.last("run-one", "node-01"), tutti.Failed, tutti.BecauseMachinery, "the report cannot be read")
}
