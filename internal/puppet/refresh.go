package puppet

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// owed is a refresh that a resource still needs.
type owed struct {
	by      []string // resources that have changed
	applied string   // a resource that was being applied and may have changed
}

// refreshes are all refreshes that are still needed at one point of a run's events.
type refreshes struct {
	notifies map[string][]string // by resource; contains only unfinished resources
	owed     map[string]*owed
	order    []string // the keys of owed, in order
	bytes    int      // the size of all these fields
}

// maxRefreshes bounds how many bytes of a run's events are kept.
const maxRefreshes = 32 << 20

// lostRefreshes lists the refreshes that an interrupted run needed but did not do. The lost refreshes count as
// failures, because Puppet does not do them later. Puppet's next run finds the changes already made, and refreshes
// nothing.
func lostRefreshes(dir string) ([]tutti.Failure, error) {
	r := refreshes{notifies: map[string][]string{}, owed: map[string]*owed{}}
	_, err := eachLine(filepath.Join(dir, "events.jsonl"), func(line []byte) {
		var e eventLine
		if r.bytes > maxRefreshes || json.Unmarshal(line, &e) != nil {
			return
		}
		switch e.Event {
		case "start":
			if len(e.Notifies) > 0 { // most resources notify no other resource
				r.bytes += sizeOf(e.Resource, e.Notifies) - sizeOf(e.Resource, r.notifies[e.Resource])
				r.notifies[e.Resource] = e.Notifies
			}
		case "done":
			r.done(e)
		}
	})
	if err == nil && r.bytes > maxRefreshes { // later events are not known
		return nil, tutti.Errorf(tutti.CodeDamaged, "its events name too many resources")
	}
	for by, targets := range r.notifies {
		for _, target := range targets {
			r.owe(target).applied = by
		}
	}
	slices.Sort(r.order)
	var out []tutti.Failure
	for _, target := range slices.Compact(r.order) {
		if o := r.owed[target]; o != nil {
			out = append(out, tutti.Failure{Resource: target, Message: o.message()})
		}
	}
	return out, err
}

// done notes that a resource has ended. If the resource needed a refresh, Puppet has done the
// refresh or has left it out.
func (r *refreshes) done(e eventLine) {
	delete(r.owed, e.Resource)
	if e.Changed {
		for _, target := range r.notifies[e.Resource] {
			o := r.owe(target)
			o.by = append(o.by, e.Resource)
			r.bytes += len(e.Resource) + len(target)
		}
	}
	r.bytes -= sizeOf(e.Resource, r.notifies[e.Resource])
	delete(r.notifies, e.Resource)
}

// sizeOf returns the approximate size of a resource and of the resources that it
// notifies, in bytes.
func sizeOf(resource string, notifies []string) int {
	if len(notifies) == 0 {
		return 0 // not kept
	}
	size := len(resource)
	for _, n := range notifies {
		size += len(n)
	}
	return size
}

func (r *refreshes) owe(target string) *owed {
	if r.owed[target] == nil {
		r.owed[target] = &owed{}
		r.order = append(r.order, target)
	}
	return r.owed[target]
}

func (o owed) message() string {
	const most, over = 3, "no later run makes up for it"
	if len(o.by) == 0 {
		return fmt.Sprintf("not refreshed; if %s had changed when the run was cut off, %s", o.applied, over)
	}
	by := strings.Join(o.by[:min(most, len(o.by))], ", ")
	if more := len(o.by) - most; more > 0 {
		by += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("not refreshed after %s changed; %s", by, over)
}
