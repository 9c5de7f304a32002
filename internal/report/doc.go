// Package report reads what Puppet says of a run: its report, as `to_data_hash`
// makes it in Puppet 7 and 8, and its log. It is pure.
//
// A node may lie in all of it. So memory is bounded while it is read, not after:
// of a report with more than is wanted the rest is counted and let go; what is no
// report is one error. All text comes out as tutti.Plain makes it.
package report

import "github.com/tutti-project/tutti"

// What is kept of a report. A text is cut, what is more than fits is counted.
const (
	maxText    = 4 << 10 // bytes of one text
	maxPart    = 2 << 20 // bytes of the JSON of one resource, of one message, of all metrics
	maxKept    = 4 << 20 // bytes of text of failed resources, and as much of the others
	maxEvents  = 50      // of one resource
	maxNames   = 50      // of one resource: classes around it, dependencies that failed
	maxLines   = 10_000  // of the log in a report
	maxTimes   = 50
	maxSlowest = 10
	// MaxResources is how many failed resources are kept, and how many others.
	MaxResources = 1000
)

func plain(text string) string { return tutti.Plain(text, maxText) }
