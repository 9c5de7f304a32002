package plain

import (
	"fmt"

	"github.com/tutti-project/tutti"
)

// Bounds of a result in the log, in bytes of JSON.
const (
	// maxResult is for all but the questions that it waits for: fifteen failures with the last lines of a journal each.
	maxResult = 64 << 10
	// maxWaits is for these. As many as a result may have, each as large as it may be, are less unless they are made of
	// what JSON makes longer.
	maxWaits = 192 << 10
	// maxShort is what stays of a text of a failure or a change that does not fit.
	maxShort = 200
)

// Result returns a result whose texts are words, and that fits into the log. Failures and changes for which there is no room are
// shortened, or left out as the questions are, and its message says so: a result is never refused for it.
func Result(r tutti.Result) tutti.Result {
	r.Outcome, r.Phase, r.Cold, r.Message = tutti.Outcome(Words(string(r.Outcome))), Words(r.Phase), Words(r.Cold), Words(r.Message)
	r.Clock.Line = Words(r.Clock.Line)
	failures, changes, waits := make([]tutti.Failure, len(r.Failures)), make([]tutti.Change, len(r.Changes)), make([]tutti.Wait, len(r.Waits))
	for i, f := range r.Failures {
		failures[i] = failure(f, maxWords)
	}
	for i, c := range r.Changes {
		changes[i] = change(c, maxWords)
	}
	for i, w := range r.Waits {
		waits[i] = tutti.Wait{Query: Query(w.Query), At: Place(w.At)}
	}
	r.Failures, r.Changes, r.Waits = nil, nil, nil
	room := maxResult - encoded(r)
	r.Failures = fitting(failures, &room, func(f tutti.Failure) tutti.Failure { return failure(f, maxShort) })
	r.Changes = fitting(changes, &room, func(c tutti.Change) tutti.Change { return change(c, maxShort) })
	room = maxWaits
	r.Waits = fitting(waits, &room, func(w tutti.Wait) tutti.Wait { return tutti.Wait{Query: w.Query} })
	if len(r.Failures) < len(failures) || len(r.Changes) < len(changes) || len(r.Waits) < len(waits) {
		note := fmt.Sprintf(" (left out, because they are too long: %d failures, %d changes, %d questions that it waits for)",
			len(failures)-len(r.Failures), len(changes)-len(r.Changes), len(waits)-len(r.Waits))
		r.Message = Cut(r.Message, maxWords-len(note)) + note
	}
	return r
}

// failure returns a failure whose texts have at most so many bytes each.
func failure(f tutti.Failure, most int) tutti.Failure {
	return tutti.Failure{Resource: Cut(f.Resource, most), File: Cut(f.File, most), Line: f.Line, Column: f.Column, Message: Cut(f.Message, most)}
}

// change does the same for a change.
func change(c tutti.Change, most int) tutti.Change {
	return tutti.Change{Resource: Cut(c.Resource, most), File: Cut(c.File, most), Line: c.Line, Message: Cut(c.Message, most)}
}

// fitting returns the first ones of a list for which there is room, and takes that. One that does not fit is made less.
func fitting[T any](all []T, room *int, less func(T) T) []T {
	for i := range all {
		size := encoded(all[i])
		if size > *room {
			all[i] = less(all[i])
			size = encoded(all[i])
		}
		if size > *room {
			return all[:i]
		}
		*room -= size + len(",")
	}
	return all
}
