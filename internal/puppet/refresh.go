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
	noted   bool     // the module says when it is done; an older module does not
}

// refreshes are all refreshes that are still needed at one point of a run's events.
type refreshes struct {
	notifies map[string][]string // by resource; contains only unfinished resources
	noted    map[string]bool     // those of them that the module has noted before it changed them
	owed     map[string]*owed
	over     map[string]bool // resources that were refreshed, or are not to be refreshed any more
	bytes    int             // of all of these fields
}

// maxRefreshes bounds how many bytes of a run's events are kept.
const maxRefreshes = 32 << 20

// Refreshes reads from the events in a run's directory which resources are to be refreshed and were not (due), and which were
// refreshed or are not to be refreshed any more (over). Both are sorted, and no resource is in both.
func Refreshes(dir string) (due, over []string, err error) {
	r, err := readRefreshes(dir)
	if err != nil {
		return nil, nil, err
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
	if err == nil && r.bytes > maxRefreshes { // later events are not known
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

// due are the resources that are still to be refreshed, sorted.
func (r *refreshes) due() []string {
	return slices.Sorted(maps.Keys(r.owed))
}

// lostRefreshes lists, as failures, the refreshes that were due and not done in a run that was not good. Puppet does not
// make up for them: its next run finds the changes already made, and refreshes nothing. The next run of Tutti's does.
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
	case "start", "change": // an older module says at the start what would be refreshed
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

// done notes that a resource has ended. With an older module it was refreshed if that was due, or Puppet has left it out.
func (r *refreshes) done(e eventLine) {
	if o := r.owed[e.Resource]; o != nil && !o.noted {
		delete(r.owed, e.Resource)
	}
	if e.Changed {
		r.changed(e.Resource)
	}
	r.ended(e.Resource)
}

// changed notes that a resource has changed or was refreshed. Its own refresh is not due because of that.
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
