package puppet

import (
	"time"

	"github.com/tutti-project/tutti/wire"
)

// Ready is what Run does when it hears of an expectation.
func (w *Warm) Ready(e wire.Expectation) { w.ready(e) }

// Older makes the facts older.
func (w *Warm) Older(by time.Duration) { w.at = w.at.Add(-by) }

// Stop ends the parent.
func (w *Warm) Stop() { w.end() }

// Root is where Puppet is looked for.
func (w *Warm) Root() string { return w.root }
