package puppet

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// owed is a refresh that a resource still needs.
type owed struct {
	by      []string // resources that have changed
	applied string   // a resource that was being applied and may have changed
	noted   bool     // the module reports the end of the refresh; an older module does not
}

// refreshes are all refreshes that are still needed at one point of a run's events.
type refreshes struct {
	notifies map[string][]string // by resource; contains only unfinished resources
	noted    map[string]bool     // the resources in `notifies` that the module noted before it changed them
	owed     map[string]*owed
	over     map[string]bool // resources that were refreshed, or no longer need a refresh
	bytes    int             // the size of all these fields
}

// maxRefreshes bounds how many bytes of a run's events are kept.
const maxRefreshes = 32 << 20

// Refreshes reads the events in a run's directory. The list `due` has the resources that still need a refresh. The list
// `over` has the resources that were refreshed or no longer need a refresh. Both lists are sorted, and no resource is
// in both.
func Refreshes(dir string) (due, over []string, err error) {
	r, err := readRefreshes(dir)
	if err != nil {
		return nil, nil, tutti.Wrap("", err, "if you remove %s, no run repeats the refreshes that this file names", filepath.Join(dir, "events.jsonl"))
	}
	return r.due(), slices.Sorted(maps.Keys(r.over)), nil
}

func readRefreshes(dir string) (*refreshes, error) {
	r := &refreshes{notifies: map[string][]string{}, noted: map[string]bool{}, owed: map[string]*owed{}, over: map[string]bool{}}
	_, err := eachLine(filepath.Join(dir, "events.jsonl"), func(line []byte) {
		var e eventLine
		if r.bytes > maxRefreshes || json.Unmarshal(line, &e) != nil {
			return
		}
		r.note(e)
	})
	if err == nil && r.bytes > maxRefreshes { // the later events were not read
		err = tutti.Errorf(tutti.CodeDamaged, "its events name too many resources")
	}
	if err != nil {
		return nil, err
	}
	for by, targets := range r.notifies {
		for _, target := range targets {
			r.owe(target).applied = by
		}
	}
	return r, nil
}

// due returns the resources that still need a refresh, sorted.
func (r *refreshes) due() []string {
	return slices.Sorted(maps.Keys(r.owed))
}

// lostRefreshes adds a failure for each refresh that a run has not done. It is only for runs without a good
// outcome. Puppet itself never does these refreshes: its next run finds nothing left to change, and refreshes
// nothing. Tutti's next run does them.
func lostRefreshes(dir string, failures []tutti.Failure) ([]tutti.Failure, error) {
	r, err := readRefreshes(dir)
	if err != nil {
		return nil, err
	}
	var out []tutti.Failure
	for _, target := range r.due() {
		failed := func(f tutti.Failure) bool { return f.Resource == target }
		if !slices.ContainsFunc(failures, failed) {
			out = append(out, tutti.Failure{Resource: target, Message: r.owed[target].message()})
		}
	}
	return out, nil
}

func (r *refreshes) note(e eventLine) {
	switch e.Event {
	case "start", "change": // an older module reports at the start of a resource what the resource notifies
		if len(e.Notifies) > 0 { // most resources notify no other resource
			all := e.Notifies
			if e.Event == "change" {
				r.noted[e.Resource] = true
				all = slices.Concat(r.notifies[e.Resource], e.Notifies)
			}
			r.bytes += sizeOf(e.Resource, all) - sizeOf(e.Resource, r.notifies[e.Resource])
			r.notifies[e.Resource] = all
		}
	case "refreshed":
		r.over[e.Resource] = true
		r.bytes += len(e.Resource)
		delete(r.owed, e.Resource)
		r.changed(e.Resource)
	case "dropped":
		r.over[e.Resource] = true
		r.bytes += len(e.Resource)
	case "done":
		r.done(e)
	}
}

// The method `done` notes that Puppet has finished a resource. An older module does not report the end of a refresh.
// With an older module, `done` also ends a due refresh of this resource: Puppet has done the refresh or left it out.
func (r *refreshes) done(e eventLine) {
	if o := r.owed[e.Resource]; o != nil && !o.noted {
		delete(r.owed, e.Resource)
	}
	if e.Changed {
		r.changed(e.Resource)
	}
	r.ended(e.Resource)
}

// changed records that a resource was changed or refreshed. If a resource that notifies itself was
// refreshed, it needs no second refresh.
func (r *refreshes) changed(resource string) {
	for _, target := range r.notifies[resource] {
		if target == resource && r.over[resource] {
			continue
		}
		o := r.owe(target)
		o.by, o.noted = append(o.by, resource), r.noted[resource]
		r.bytes += len(resource) + len(target)
	}
	r.ended(resource)
}

func (r *refreshes) ended(resource string) {
	r.bytes -= sizeOf(resource, r.notifies[resource])
	delete(r.notifies, resource)
	delete(r.noted, resource)
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
	delete(r.over, target)
	if r.owed[target] == nil {
		r.owed[target] = &owed{}
	}
	return r.owed[target]
}

func (o owed) message() string {
	const most, next = 3, "the next run repeats the refresh"
	if len(o.by) == 0 {
		return fmt.Sprintf("not refreshed, and %s may have changed when the run was cut off; %s", o.applied, next)
	}
	by := strings.Join(o.by[:min(most, len(o.by))], ", ")
	if more := len(o.by) - most; more > 0 {
		by += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("not refreshed after %s changed; %s", by, next)
}
