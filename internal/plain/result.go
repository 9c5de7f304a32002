package plain

import (
	"fmt"

	"github.com/tutti-project/tutti"
)

// The constants bound a result in the log, in bytes of JSON.
const (
	// maxResult bounds a result without its list Waits: the questions for which the run waits. The
	// bound is enough for fifteen failures, each with the last lines of a journal.
	maxResult = 64 << 10
	// maxWaits bounds the list Waits. The bound is enough for the largest allowed number of questions of the
	// largest allowed size. But some characters are longer in JSON, so questions with many such characters may
	// not fit.
	maxWaits = 192 << 10
	// If a failure or a change does not fit, its texts are cut to maxShort bytes.
	maxShort = 200
)

// Result returns a result whose texts are safe (see Words) and that fits into the log. If failures and changes do not
// fit, Result shortens them or leaves them out. If questions do not fit, Result leaves them out. The message of the
// result then says that something is missing. A result is therefore never refused because of its size.
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
	var owed []tutti.Owed
	for _, o := range r.Owed { // keep all, because a node without owed refreshes may count as good
		owed = append(owed, tutti.Owed{Resource: Cut(o.Resource, maxShort), Run: o.Run})
	}
	r.Failures, r.Changes, r.Waits, r.Owed = nil, nil, nil, owed
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

// The function `failure` returns a failure in which no text has more than `most` bytes.
func failure(f tutti.Failure, most int) tutti.Failure {
	return tutti.Failure{Resource: Cut(f.Resource, most), File: Cut(f.File, most), Line: f.Line, Column: f.Column, Message: Cut(f.Message, most)}
}

// The function `change` returns a change in which no text has more than `most` bytes.
func change(c tutti.Change, most int) tutti.Change {
	return tutti.Change{Resource: Cut(c.Resource, most), File: Cut(c.File, most), Line: c.Line, Message: Cut(c.Message, most)}
}

// fitting returns the first elements of a list, as many as fit into `room` bytes, and subtracts their size from
// `room`. If an element does not fit, fitting tries the shorter element that the function `less` returns.
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
