package puppet

import (
	"time"

	"github.com/tutti-project/tutti/wire"
)

// Ready does what Run does when it gets an expectation.
func (w *Warm) Ready(e wire.Expectation) { w.ready(e) }

// Older makes the collected facts older.
func (w *Warm) Older(by time.Duration) { w.at = w.at.Add(-by) }

// Stop ends the parent.
func (w *Warm) Stop() { w.end() }

// Root returns the directory below which Warm looks for Puppet.
func (w *Warm) Root() string { return w.root }
