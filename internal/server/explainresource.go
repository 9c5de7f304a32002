package server

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
)

// resourceStatus is what Puppet's report says of one resource.
type resourceStatus struct {
	File        string    `json:"file"`
	Line        int       `json:"line"`
	Time        time.Time `json:"time"`
	Containment []string  `json:"containment_path"`
	Failed      bool      `json:"failed"`
	Restart     bool      `json:"failed_to_restart"`
	Skipped     bool      `json:"skipped"`
	Changed     bool      `json:"changed"`
	OutOfSync   bool      `json:"out_of_sync"`
	Events      []struct {
		Property   string          `json:"property"`
		Status     string          `json:"status"`
		Message    string          `json:"message"`
		Previous   json.RawMessage `json:"previous_value"`
		Desired    json.RawMessage `json:"desired_value"`
		Time       time.Time       `json:"time"`
		Corrective bool            `json:"corrective_change"`
	} `json:"events"`
}

// reference is `Type[title]`; people write it in lower case, too.
var reference = regexp.MustCompile(`(?s)^([A-Za-z][a-z0-9_A-Z]*(?:::[A-Za-z][a-z0-9_A-Z]*)*)\[(.+)\]$`)

// splitReference returns type and title as Puppet writes them.
func splitReference(text string) (typ, title string, err error) {
	parts := reference.FindStringSubmatch(text)
	if parts == nil {
		return "", "", tutti.Errorf(tutti.CodeInvalid, "resource %q: it is written as Type[title], say 'File[/etc/motd]'", text)
	}
	segments := strings.Split(parts[1], "::")
	for i, s := range segments {
		segments[i] = strings.ToUpper(s[:1]) + s[1:]
	}
	return strings.Join(segments, "::"), parts[2], nil
}

// told is what the fold says about a resource of a node.
type told struct {
	run      tutti.RunView
	report   tutti.Digest
	record   tutti.Digest
	exported []tutti.Export // of other nodes, by that reference
}

// ExplainResource implements tutti.Explains.
func (s *Server) ExplainResource(ctx context.Context, in tutti.ExplainResource) (tutti.ResourceExplanation, error) {
	typ, title, err := splitReference(in.Resource)
	if err != nil {
		return tutti.ResourceExplanation{}, err
	}
	out := tutti.ResourceExplanation{Node: in.Node, Resource: typ + "[" + title + "]"}
	var fold told
	err = s.do(ctx, func(tx *tx) (err error) {
		fold, err = tx.told(in.Node, typ, title)
		return err
	})
	if err != nil {
		return out, err
	}
	out.Run = &fold.run
	if err := s.fillStatus(ctx, fold.report, &out); err != nil {
		return out, err
	}
	record, err := s.loadRecord(ctx, fold.record)
	if err != nil {
		return out, err
	}
	if record != nil {
		out.Reads, out.Keys = readsIn(*record, out.Containers)
		err = s.fillExported(ctx, *record, fold.exported, &out)
	}
	return out, err
}

// told finds the last run of a node that left a report, and who exports the
// resource.
func (tx *tx) told(node tutti.NodeName, typ, title string) (told, error) {
	if tx.registry.nodes[node] == nil {
		return told{}, tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(node))
	}
	last := tx.engine.Last(node)
	for _, r := range []*engine.Run{last.Claimed, last.Applied, last.Passed} {
		if r == nil || r.Result == nil || r.Result.Report == "" || r.Result.Stopped {
			continue
		}
		byTitle, err := json.Marshal([]string{"=", "title", title})
		if err != nil {
			return told{}, err
		}
		answer := tx.data.Answer(tutti.Query{Kind: tutti.QueryCollect, Type: typ, Filter: byTitle}, data.Asker{Node: node})
		return told{tx.runView(r), r.Result.Report, r.Result.Record, answer.Exports}, nil
	}
	return told{}, tutti.Errorf(tutti.CodeNotFound, "node %s has no report of a run that applied a catalog; see: tutti explain node %s", node, node)
}

// fillStatus reads what a report says of the resource.
func (s *Server) fillStatus(ctx context.Context, report tutti.Digest, out *tutti.ResourceExplanation) error {
	raw, err := s.opts.Blobs.Get(ctx, report)
	if err != nil {
		return tutti.Wrap("", err, "the report of run %s", out.Run.Run)
	}
	var all struct {
		Statuses map[string]json.RawMessage `json:"resource_statuses"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "the report of run %s", out.Run.Run)
	}
	text, found := all.Statuses[out.Resource]
	if !found {
		return nil
	}
	var st resourceStatus
	if err := json.Unmarshal(text, &st); err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "the report of run %s, resource %s", out.Run.Run, out.Resource)
	}
	out.Reported, out.Status, out.At = true, st.word(), st.Time
	out.Place = plainPlace(tutti.Place{File: st.File, Line: st.Line})
	out.Containers = containers(st.Containment)
	for _, e := range st.Events {
		out.Events = append(out.Events, tutti.ResourceEvent{
			Property: words(e.Property), Status: words(e.Status), Message: words(e.Message), Old: plainText(e.Previous), New: plainText(e.Desired),
			At: e.Time, Corrective: e.Corrective,
		})
	}
	return nil
}

func (st resourceStatus) word() string {
	switch {
	case st.Failed || st.Restart:
		return "failed"
	case st.Skipped:
		return "skipped"
	case st.Changed:
		return "changed"
	case st.OutOfSync:
		return "out of sync"
	}
	return "unchanged"
}

// plainText is a value as Puppet prints it, in words: text without quotes, nothing
// for null.
func plainText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return words(text)
	}
	return words(string(raw))
}

// containers are the classes and defines of a containment path, which has classes
// without `Class[]`, a stage at its beginning and the resource at its end.
func containers(path []string) []string {
	var out []string
	for _, name := range path[:max(0, len(path)-1)] {
		switch {
		case strings.HasPrefix(name, "Stage["):
			continue
		case name == "Main":
			name = "main"
			fallthrough
		case !strings.HasSuffix(name, "]"):
			name = "Class[" + name + "]"
		}
		out = append(out, words(name))
	}
	return out
}

// readsIn returns what a run asked while it evaluated some classes and defines.
func readsIn(record tutti.Record, containers []string) ([]tutti.Read, []tutti.KeyRead) {
	in := func(p tutti.Place) bool {
		return slices.ContainsFunc(containers, func(c string) bool { return strings.EqualFold(c, p.Resource) })
	}
	var reads []tutti.Read
	var keys []tutti.KeyRead
	for _, r := range record.Reads {
		if in(r.At) {
			reads = append(reads, r)
		}
	}
	for _, k := range record.Keys {
		if in(k.At) {
			keys = append(keys, k)
		}
	}
	return reads, keys
}

// fillExported says which nodes export the resource, if the run has collected it.
func (s *Server) fillExported(ctx context.Context, record tutti.Record, exports []tutti.Export, out *tutti.ResourceExplanation) error {
	for _, e := range exports {
		for _, r := range record.Reads {
			if r.Query.Kind != tutti.QueryCollect || r.Query.Type != e.Type {
				continue
			}
			if filter, err := data.ParseFilter(r.Query.Filter); err != nil || !filter.Match(e) {
				continue
			}
			out.Exported = append(out.Exported, tutti.Exported{Node: e.Node, Place: plainPlace(tutti.Place{File: e.File, Line: e.Line}), Read: r})
			break
		}
	}
	if len(out.Exported) == 0 {
		return nil
	}
	t, err := s.trail(ctx)
	if err != nil {
		return err
	}
	var views []*tutti.RunView
	for i, e := range out.Exported {
		if changes := t.exports[e.Node]; len(changes) > 0 {
			last := changes[len(changes)-1]
			out.Exported[i].Run = &tutti.RunView{Run: last.Run, Job: last.Job, Node: e.Node}
			views = append(views, out.Exported[i].Run)
		}
	}
	return s.runs(ctx, views...)
}
