// Package report reads the report and the log of a Puppet run. The report has the form that
// `to_data_hash` makes in Puppet 7 and 8. It is pure.
//
// A node may lie in every part of its report and its log. So package report limits its memory while
// it reads. Parts of a report above the limits are counted and dropped. If the input is not a
// report, the package returns one error. All texts are cleaned by tutti.Plain.
package report

import "github.com/tutti-project/tutti"

// The following constants limit the parts of a report that are kept. A text that is too long is
// cut. Parts above a limit are only counted.
const (
	maxText    = 4 << 10 // bytes of one text
	maxPart    = 2 << 20 // bytes of the JSON of one resource, of one message, or of all metrics
	maxKept    = 4 << 20 // bytes of the text of failed resources, and the same for other resources
	maxEvents  = 50      // events of one resource
	maxNames   = 50      // classes around one resource, and failed dependencies of one resource
	maxLines   = 10_000  // lines of the log in a report
	maxTimes   = 50
	maxSlowest = 10
	// MaxResources is the largest number of failed resources that are kept, and also the largest number of other
	// resources.
	MaxResources = 1000
)

func plain(text string) string { return tutti.Plain(text, maxText) }
