// Package board has a table of views that many viewers follow (ADR 0042). The table numbers its changes, so that a viewer needs
// only a number to get what is new.
package board

import (
	"bytes"
	"container/list"
	"encoding/json"
)

// MaxGone is how many removed keys a table remembers. A viewer that has missed more gets the whole table again.
const MaxGone = 10_000

// Stamp numbers the changes of a table. Each change of a row has its own stamp. A viewer that has everything up to a stamp
// knows all changes with this stamp or a lower one. The stamp of a viewer that has nothing is 0.
type Stamp uint64

// Row is a view with its key, or a key that is gone. Nobody may change the view.
type Row struct {
	Key  string
	View json.RawMessage // nil: there is no such view any more
}

// Table is a map from keys to views. The zero value is not usable, see New. A Table is not safe for concurrent use.
type Table struct {
	rows  map[string]*list.Element // to the entries
	order *list.List               // of *entry; the last changed entry is the last one
	stamp Stamp                    // the last change
	gone  int                      // how many entries have no view
	floor Stamp                    // the last change that the table has forgotten
}

type entry struct {
	Row
	stamp Stamp
}

// New returns an empty table.
func New() *Table { return &Table{rows: map[string]*list.Element{}, order: list.New()} }

// Stamp returns the last change.
func (t *Table) Stamp() Stamp { return t.stamp }

// Set replaces the content of the table. Only rows that differ from the rows before count as changes.
func (t *Table) Set(views map[string]json.RawMessage) {
	for key, view := range views {
		t.put(key, view)
	}
	for key, at := range t.rows {
		if _, there := views[key]; !there && at.Value.(*entry).View != nil {
			t.put(key, nil)
		}
	}
	for at := t.order.Front(); at != nil && t.gone > MaxGone; {
		next := at.Next()
		if e := at.Value.(*entry); e.View == nil {
			t.floor, t.gone = e.stamp, t.gone-1
			t.order.Remove(at)
			delete(t.rows, e.Key)
		}
		at = next
	}
}

// The method `put` changes one row, if it differs from the row before. A nil view removes the row.
func (t *Table) put(key string, view json.RawMessage) {
	at := t.rows[key]
	if at != nil {
		old := at.Value.(*entry)
		if old.View != nil == (view != nil) && bytes.Equal(old.View, view) {
			return
		}
		if old.View == nil {
			t.gone--
		}
		t.order.Remove(at)
	}
	if view == nil {
		t.gone++
	}
	t.stamp++
	t.rows[key] = t.order.PushBack(&entry{Row{key, view}, t.stamp})
}

// Since returns what is new for a viewer that has everything up to the stamp `after`: rows that differ, the oldest change first,
// and the stamp that the viewer has with them. The rows have together at most `most` bytes, but at least one row is returned
// if one is new. `wants` says which keys the viewer wants.
//
// If `reset` is true, the viewer must first forget all views, because the table does not know any more which of them are
// gone, or because the stamp is not one of this table.
func (t *Table) Since(after Stamp, wants func(key string) bool, most int) (rows []Row, now Stamp, reset bool) {
	if reset = after != 0 && after < t.floor || after > t.stamp; reset {
		after = 0
	}
	at := t.order.Back()
	for at != nil && at.Value.(*entry).stamp > after {
		at = at.Prev()
	}
	if at == nil {
		at = t.order.Front()
	} else {
		at = at.Next()
	}
	size := 0
	for ; at != nil; at = at.Next() {
		e := at.Value.(*entry)
		if wants(e.Key) && (e.View != nil || after != 0) {
			size += len(e.Key) + len(e.View)
			if len(rows) > 0 && size > most {
				return rows, now, reset
			}
			rows = append(rows, e.Row)
		}
		now = e.stamp
	}
	return rows, t.stamp, reset
}
