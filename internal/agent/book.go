package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// book keeps the answers that one run got and the values that it published. The book is in the run's
// directory, and is fsynced when the run has ended. Until the run has ended, the book must survive
// the end of the agent. It need not survive a reboot of the machine, because a reboot ends the run.
type book struct {
	mu      sync.Mutex
	dir     string
	file    *os.File
	size    int64 // length of the complete entries in the file
	entries []entry
	byQuery map[string]int
	hiera   *hieraEntry
}

// entry is one line of answers.jsonl. Exactly one field of an entry is set.
type entry struct {
	Answer    *answerEntry    `json:"answer,omitempty"`
	Hiera     *hieraEntry     `json:"hiera,omitempty"`
	Hello     *hello          `json:"hello,omitempty"`
	Published *publishedEntry `json:"published,omitempty"`
	Missing   *tutti.Wait     `json:"missing,omitempty"` // a question that the agent could not answer
	// Unpublished is a key that a local run would have published or withdrawn.
	Unpublished string      `json:"unpublished,omitempty"`
	Asked       *askedEntry `json:"asked,omitempty"`
	// Overlapped are the Puppet processes without a lock that ran at the same time as this run.
	Overlapped []string `json:"overlapped,omitempty"`
	// Gated is when the run came to its gate. Before that, the run had changed
	// nothing.
	Gated *tutti.Clock `json:"gated,omitempty"`
}

type answerEntry struct {
	Query    tutti.Query `json:"query"`
	Answer   wire.Answer `json:"answer"`
	Degraded bool        `json:"degraded,omitempty"`
	At       tutti.Place `json:"at,omitzero"`
}

type hieraEntry struct {
	Data     wire.HieraData `json:"data"`
	Degraded bool           `json:"degraded,omitempty"`
}

// askedEntry is what the run looked up but did not hand over at a gate.
type askedEntry struct {
	Keys  []tutti.KeyRead `json:"keys"`
	Facts tutti.Digest    `json:"facts,omitempty"`
}

type publishedEntry struct {
	Key    string       `json:"key"`
	Digest tutti.Digest `json:"digest,omitempty"` // empty if the value was withdrawn
}

const (
	answersFile = "answers.jsonl"
	gateFile    = "gate.json"
)

// openBook reads the existing book. If an agent was killed while it wrote the last line, openBook drops
// this line.
func openBook(dir string) (*book, error) {
	b := &book{dir: dir, byQuery: map[string]int{}}
	path := filepath.Join(dir, answersFile)
	raw, err := excerpt.Read(path, maxSealed)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range lines(raw) {
		var e entry
		if err := unseal(path, line, &e); err != nil {
			return nil, err
		}
		b.index(e)
		b.size += int64(len(line)) + 1
	}
	if b.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	if err := b.file.Truncate(b.size); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *book) close() { b.file.Close() }

func (b *book) index(e entry) {
	if e.Answer != nil {
		b.byQuery[queryKey(e.Answer.Query)] = len(b.entries)
	}
	if e.Hiera != nil {
		b.hiera = e.Hiera
	}
	b.entries = append(b.entries, e)
}

// The method `write` adds an entry. If write fails, Puppet does not get the answer. On a full disk,
// the next entry overwrites a half-written one.
func (b *book) write(e entry) error {
	raw, err := seal(e)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size+int64(len(raw)) > maxSealed {
		return tutti.Errorf(tutti.CodeInvalid, "the answers and published values of the run have more than %d bytes", maxSealed)
	}
	if _, err := b.file.WriteAt(raw, b.size); err != nil {
		_ = b.file.Truncate(b.size) // without this, the next openBook could find half an entry
		return err
	}
	if e.Overlapped == nil { // another test's Puppet adds this entry, so the number of passes would change
		killpoint.Here("agent.booked")
	}
	b.size += int64(len(raw))
	b.index(e)
	return nil
}

// The method `answer` returns the answer that the run already got to the same question.
func (b *book) answer(q tutti.Query) (answerEntry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, ok := b.byQuery[queryKey(q)]
	if !ok {
		return answerEntry{}, false
	}
	return *b.entries[i].Answer, true
}

func (b *book) hieraData() *hieraEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hiera
}

// The method `greeted` returns the launcher's last hello.
func (b *book) greeted() hello {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out hello
	for _, e := range b.entries {
		if e.Hello != nil {
			out = *e.Hello
		}
	}
	return out
}

func queryKey(q tutti.Query) string {
	raw, _ := json.Marshal(q) // encoding strings and raw JSON never fails
	return string(raw)
}

func (b *book) degraded() bool {
	if b.hiera != nil && b.hiera.Degraded {
		return true
	}
	for _, e := range b.entries {
		if e.Answer != nil && e.Answer.Degraded {
			return true
		}
	}
	return false
}

func (b *book) overlapped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.entries, func(e entry) bool { return len(e.Overlapped) > 0 })
}

// The method `clock` returns the time when the run last came to its gate. If the run never came to
// its gate, the method returns when the run began.
func (b *book) clock(began tutti.Clock) tutti.Clock {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if e.Gated != nil {
			began = *e.Gated
		}
	}
	return began
}

// The method `unanswered` lists the questions that the agent could not answer.
func (b *book) unanswered() []tutti.Wait {
	var out []tutti.Wait
	for _, e := range b.entries {
		if e.Missing != nil {
			out = append(out, *e.Missing)
		}
	}
	return out
}

// The method `unpublished` lists the keys that a local run would have published or withdrawn,
// sorted.
func (b *book) unpublished() []string {
	var out []string
	for _, e := range b.entries {
		if e.Unpublished != "" {
			out = append(out, e.Unpublished)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The method `reads` lists the questions with the digests of their answers, and the looked-up
// hiera keys that have a value in Tutti's own hiera level.
func (b *book) reads(keys []tutti.KeyRead) []tutti.Read {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []tutti.Read
	for _, e := range b.entries {
		if a := e.Answer; a != nil {
			out = append(out, tutti.Read{
				Query: a.Query, Found: a.Answer.Found, Digest: a.Answer.Digest, Seq: a.Answer.Seq, Degraded: a.Degraded, At: a.At,
			})
		}
	}
	for _, k := range keys {
		if !k.Found || b.hiera == nil {
			continue
		}
		out = append(out, tutti.Read{
			Query: tutti.Query{Kind: tutti.QueryHiera, Key: k.Key}, Found: true,
			Digest: b.hiera.Data.Digests[k.Key], Seq: b.hiera.Data.Seq, Degraded: b.hiera.Degraded, At: k.At,
		})
	}
	return out
}

// askedMore reports whether a run asked something after its gate.
func (b *book) askedMore(record tutti.Record) bool {
	gate, err := readSealed[wire.Gate](filepath.Join(b.dir, gateFile))
	return err == nil && (len(record.Reads) != len(gate.Reads) || len(record.Keys) != len(gate.Keys))
}

// record returns the run's record, up to the phase that the run reached. An error means that the file
// with the run's message at its gate cannot be read.
func (b *book) record(spec Spec) (tutti.Record, error) {
	out := tutti.Record{Run: spec.Order.Run, Node: spec.Node, Inputs: tutti.Inputs{Code: spec.Order.Code, Mode: spec.Order.Mode}}
	gate, err := readSealed[wire.Gate](filepath.Join(b.dir, gateFile))
	switch {
	case err == nil:
		out.Keys = gate.Keys
		out.Inputs.Catalog, out.Inputs.Facts = gate.Catalog, gate.Facts
		out.Inputs.Sources, out.Inputs.Lib = gate.Sources, gate.Lib
		for _, e := range gate.Exports {
			out.Exports = append(out.Exports, e.Ref())
		}
	case !errors.Is(err, fs.ErrNotExist):
		return out, err
	}
	for _, e := range b.entries {
		if e.Asked != nil { // such an entry exists if the run never came to its gate, or asked more questions after its gate
			out.Keys, out.Inputs.Facts = e.Asked.Keys, e.Asked.Facts
		}
	}
	out.Reads = b.reads(out.Keys)
	by := b.greeted()
	out.Inputs.Puppet, out.Inputs.Module = by.Puppet, by.Module
	for _, e := range b.entries {
		if p := e.Published; p != nil {
			if out.Published == nil {
				out.Published = map[string]tutti.Digest{}
			}
			out.Published[p.Key] = p.Digest
		}
	}
	return out, nil
}
