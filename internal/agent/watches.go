package agent

import (
	"context"
	"errors"

	"github.com/tutti-project/tutti"
)

// The type `watches` contains a watch for each file to which a Puppet of this node writes its
// reports.
type watches struct {
	*Agent
	agent  *watch        // watches the reports of `puppet agent`, and of `puppet apply` if it writes to the same file
	apply  *watch        // watches the reports of `puppet apply` if it writes to another file
	bell   chan struct{} // rings when a report, or puppet.conf, may have changed
	said   string        // the reason why a report was skipped
	failed bool          // the agent could not complete the last look
}

func newWatches(a *Agent) *watches {
	bell := make(chan struct{}, 1)
	return &watches{Agent: a, bell: bell, agent: &watch{Agent: a, bell: bell}, apply: &watch{Agent: a, bell: bell, name: ".apply"}}
}

func (w *watches) close() {
	w.agent.close()
	w.apply.close()
}

// The method `look` looks at the reports in all files. The result `heard` is true if the agent has
// something to report.
func (w *watches) look(ctx context.Context) (heard bool, err error) {
	w.failed = false
	if w.opts.Witness == nil {
		return false, nil
	}
	files, conf, err := w.opts.Witness.ReportFiles()
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return false, nil // Puppet is not installed; the agent looks again after the next run of Tutti
	}
	if err != nil {
		w.failed = true
		return false, err
	}
	alone := len(files) == 1
	w.agent.leaves = func(dir string) bool { return alone || w.program(dir) == tutti.ProgramAgent }
	w.apply.leaves = func(dir string) bool { return w.program(dir) == tutti.ProgramApply }
	if alone && w.apply.reports != nil {
		w.apply.reports.missed() // the agent does not look at this file any more
	}
	for i, file := range files {
		one := []*watch{w.agent, w.apply}[i]
		one.file, one.conf = file, conf
		isNew, oneErr := one.look(ctx)
		heard, w.failed, err = heard || isNew, w.failed || one.failed, errors.Join(err, oneErr)
	}
	return heard, err
}

// program returns the program of one of our runs. The method returns an empty string if the program is not known.
func (w *watches) program(dir string) tutti.Program {
	spec, err := w.opts.Runner.Spec(dir)
	switch {
	case err != nil:
		return ""
	case spec.Order.Program == "":
		return tutti.ProgramApply
	}
	return spec.Order.Program
}
