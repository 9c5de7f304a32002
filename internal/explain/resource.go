package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/report"
)

// reference matches `Type[title]`. People also write the type with lower-case letters.
var reference = regexp.MustCompile(`(?s)^([A-Za-z][a-z0-9_A-Z]*(?:::[A-Za-z][a-z0-9_A-Z]*)*)\[(.+)\]$`)

// splitReference returns the type and the title in Puppet's spelling.
func splitReference(text string) (typ, title string, err error) {
	parts := reference.FindStringSubmatch(text)
	if parts == nil {
		return "", "", tutti.Errorf(tutti.CodeInvalid, "resource %q: write Type[title], for example 'File[/etc/motd]'", text)
	}
	segments := strings.Split(parts[1], "::")
	for i, s := range segments {
		segments[i] = strings.ToUpper(s[:1]) + s[1:]
	}
	return strings.Join(segments, "::"), parts[2], nil
}

// The type `told` contains the data of the fold about a resource of a node.
type told struct {
	run      api.RunView
	retired  bool // the report of the run may have been deleted
	report   tutti.Digest
	record   kept           // the record of the run; for a foreign run, the record of the last run of Tutti
	exported []tutti.Export // exports of other nodes that have this reference
}

// ExplainResource implements tutti.Explains.
func (rd *Reader) ExplainResource(ctx context.Context, in api.ExplainResource) (api.ResourceExplanation, error) {
	typ, title, err := splitReference(in.Resource)
	if err != nil {
		return api.ResourceExplanation{}, err
	}
	out := api.ResourceExplanation{Node: in.Node, Resource: typ + "[" + title + "]"}
	var fold told
	err = rd.look(ctx, func(v View) (err error) {
		fold, err = v.told(in.Node, typ, title)
		return err
	})
	if err != nil {
		return out, err
	}
	out.Run = &fold.run
	if err := rd.fillStatus(ctx, fold, &out); err != nil {
		return out, err
	}
	record, err := rd.loadRecord(ctx, fold.record)
	if err != nil {
		return out, err
	}
	if record != nil {
		if !fold.run.Foreign {
			out.Reads, out.Keys = readsIn(*record, out.Containers)
		}
		err = rd.fillExported(ctx, *record, fold.exported, &out)
	}
	return out, err
}

// The method `told` finds the last run of a node whose report has resources. The method also finds the nodes that
// export the resource. A proof applies nothing, so the method uses the run before the proof.
func (v View) told(node tutti.NodeName, typ, title string) (told, error) {
	if v.Registry.Nodes[node] == nil {
		return told{}, tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(node))
	}
	r := v.Engine.Last(node).Reported
	for _, f := range v.Engine.Foreigns(node) { // the latest run first
		if tells(f.Result) && f.After(r) {
			r = f
			break
		}
	}
	if r == nil {
		return told{}, tutti.Errorf(tutti.CodeNotFound, "node %s has no report of a run that applied a catalog; see: tutti explain node %s", node, node)
	}
	byTitle, err := json.Marshal([]string{"=", "title", title})
	if err != nil {
		return told{}, err
	}
	answer := v.Data.Answer(tutti.Query{Kind: tutti.QueryCollect, Type: typ, Filter: byTitle}, data.Asker{Node: node})
	out := told{v.run(r), v.retired(r), r.Result.Report, keptOf(r), answer.Exports}
	if basis := v.Converge.Basis(node); r.Foreign != nil && basis != nil {
		out.record = keptOf(basis)
	}
	return out, nil
}

// The function `tells` returns true if the report of a foreign or local run has resources. Such a run has no phases,
// so tutti.Result.Tells cannot be used.
func tells(r *tutti.Result) bool { return r.Report != "" && (r.Outcome.Good() || r.Counts.Total > 0) }

// fillStatus reads the status of the resource in a report.
func (rd *Reader) fillStatus(ctx context.Context, of told, out *api.ResourceExplanation) error {
	raw, err := rd.blobs.Get(ctx, of.report)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return notThere(fmt.Sprintf("the report of run %s, the last of %s,", out.Run.Run, out.Node), of.retired)
	}
	if err != nil {
		return tutti.Wrap("", err, "the report of run %s", out.Run.Run)
	}
	st, found, err := report.Find(raw, out.Resource)
	if err != nil || !found {
		return tutti.Wrap(tutti.CodeInvalid, err, "the report of run %s", out.Run.Run)
	}
	out.Reported, out.Status, out.At = true, st.Outcome, st.At
	out.Place, out.Containers, out.Events = st.Place, st.Containers, st.Events
	return nil
}

// readsIn returns the questions that a run asked while it evaluated these classes and defines.
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

// If the run has collected the resource, fillExported stores in `out` which nodes export it.
func (rd *Reader) fillExported(ctx context.Context, record tutti.Record, exports []tutti.Export, out *api.ResourceExplanation) error {
	for _, e := range exports {
		for _, r := range record.Reads {
			if r.Query.Kind != tutti.QueryCollect || r.Query.Type != e.Type {
				continue
			}
			if filter, err := data.ParseFilter(r.Query.Filter); err != nil || !filter.Match(e) {
				continue
			}
			out.Exported = append(out.Exported, api.Exported{Node: e.Node, Place: plain.Place(tutti.Place{File: e.File, Line: e.Line}), Read: r})
			break
		}
	}
	if len(out.Exported) == 0 {
		return nil
	}
	t, err := rd.trail(ctx)
	if err != nil {
		return err
	}
	var views []*api.RunView
	for i, e := range out.Exported {
		if changes := t.exports[e.Node]; len(changes) > 0 {
			last := changes[len(changes)-1]
			out.Exported[i].Run = &api.RunView{Run: last.Run, Job: last.Job, Node: e.Node}
			views = append(views, out.Exported[i].Run)
		}
	}
	return rd.runs(ctx, views...)
}
