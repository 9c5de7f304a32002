package explain

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/selector"
)

const (
	// queryTime is how long a query may take.
	queryTime = 5 * time.Minute
	// queriesAtOnce is how many queries the server answers at the same time. The others wait.
	queriesAtOnce = 2
	maxShown      = 50  // paths of a query
	maxPath       = 500 // bytes of a path
)

// inventories has the method of a Reader about facts and catalogs.
type inventories struct {
	rd   *Reader
	turn chan struct{}
}

// query is a checked api.Query.
type query struct {
	of    api.QueryOf
	on    *selector.Selector
	where *selector.Row
	show  [][]string
	now   time.Time
	blobs tutti.Blobs
	// found is true if --on selects a node, or if nobody knows whether it does.
	found bool
}

// subject is the name of a row in expressions.
var subject = map[api.QueryOf]string{
	api.QueryFacts: "facts", api.QueryResources: "resource", api.QueryClasses: "class", api.QueryRuns: "run",
}

// part is the part of the inventory that a query reads.
var part = map[api.QueryOf]tutti.InventoryPart{
	api.QueryFacts: tutti.InventoryFacts, api.QueryResources: tutti.InventoryCatalog, api.QueryClasses: tutti.InventoryCatalog,
}

// asked is what a query needs of one node. It does not change when the fold does.
type asked struct {
	node    selector.Node
	facts   *tutti.Held
	catalog *tutti.Held
	lack    string // why the server holds nothing of this node
	old     string // see api.QueriedNode
	runs    []api.RunReport
}

// Query implements tutti.Inventories.
func (i inventories) Query(ctx context.Context, in api.Query, yield func(api.QueriedNode) error) error {
	q, err := i.parse(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTime, tutti.Errorf(tutti.CodeDeadline,
		"the query took longer than %s: let --on select fewer nodes", queryTime))
	defer cancel()
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	nodes, err := i.nodes(ctx, q)
	if err != nil {
		return err
	}
	for _, a := range nodes {
		answer, err := q.answer(ctx, a)
		if err == nil && answer != nil {
			err = yield(*answer)
		}
		if err != nil {
			return err
		}
	}
	if q.found {
		return nil
	}
	return tutti.Errorf(tutti.CodeInvalid, "--on %s selects none of %d nodes", q.on, len(nodes))
}

func (i inventories) parse(in api.Query) (*query, error) {
	name := subject[in.Of]
	if name == "" {
		return nil, tutti.Errorf(tutti.CodeInvalid, "a query of %q: there are facts, resources, classes and runs", string(in.Of))
	}
	q := &query{of: in.Of, blobs: i.rd.blobs}
	var err error
	if q.on, err = selector.Parse(in.On); err != nil {
		return nil, err
	}
	if q.where, err = selector.ParseRow(name, in.Where); err != nil {
		return nil, err
	}
	if len(in.Show) > maxShown {
		return nil, tutti.Errorf(tutti.CodeInvalid, "--show: %d paths, at most %d", len(in.Show), maxShown)
	}
	for _, path := range in.Show {
		steps := strings.Split(path, ".")
		if len(path) > maxPath || slices.Contains(steps, "") {
			return nil, tutti.Errorf(tutti.CodeInvalid, "--show %q: a path has names with points between them, like os.release.major", path)
		}
		q.show = append(q.show, steps)
	}
	return q, nil
}

// The method `nodes` returns the nodes that a query is about, sorted by name. If a selector needs facts, these are not
// decided yet.
func (i inventories) nodes(ctx context.Context, q *query) ([]asked, error) {
	var out []asked
	err := i.rd.look(ctx, func(v View) error {
		q.now = v.Now
		rules := v.Fleet().Inventory
		if err := q.mayAsk(rules); err != nil {
			return err
		}
		runs := map[tutti.NodeName][]api.RunReport{}
		if q.of == api.QueryRuns {
			for _, r := range v.Engine.Runs {
				runs[r.Node] = append(runs[r.Node], v.runReport(r))
			}
		}
		paused := v.Paused(v.Now)
		for _, n := range v.Registry.Nodes {
			view := v.node(n)
			view.Paused = paused(n.Node)
			a := asked{node: selector.Of(view), facts: n.Inventory.Part(tutti.InventoryFacts), catalog: n.Inventory.Part(tutti.InventoryCatalog), runs: runs[n.Node]}
			switch {
			case slices.Contains(view.TooOldFor, tutti.CapabilityInventory):
				a.lack = tutti.TooOld(n.Node, view.Version, []tutti.Capability{tutti.CapabilityInventory})
			case view.Observed:
				a.lack = "the node is observed, so Tutti starts no Puppet on it"
			default:
				a.lack = "the node has sent nothing yet: a node sends its facts after its next run"
				if part[q.of] == tutti.InventoryCatalog {
					a.lack = "the node has sent nothing yet: a node sends its catalog after its next run in mode apply"
				}
			}
			held := n.Inventory.Part(part[q.of])
			switch {
			case held == nil:
			case view.Conflicted != "":
				a.old = "two machines say that they are this node, so the server takes nothing from it"
			case ranSince(v, n.Node, held.At) != "":
				a.old = ranSince(v, n.Node, held.At)
			case view.Observed:
				a.old = "the node is observed now"
			}
			out = append(out, a)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b asked) int { return cmp.Compare(a.node.Name, b.node.Name) })
	return out, err
}

// ranSince says which run that the server did not order came after the content of an inventory.
func ranSince(v View, node tutti.NodeName, at time.Time) string {
	all := v.Engine.Foreigns(node) // the latest first
	switch {
	case len(all) == 0 || !all[0].Result.StartedAt.After(at):
		return ""
	case all[0].Foreign.Local != nil:
		return "a local run came later"
	}
	return "Puppet has run since without Tutti"
}

// The method `mayAsk` refuses a query for which the server holds nothing.
func (q *query) mayAsk(rules tutti.InventoryRules) error {
	names, all := q.on.Facts()
	if !rules.Facts && (q.of == api.QueryFacts || all || len(names) > 0) {
		return notHeld("facts")
	}
	if !rules.Resources && part[q.of] == tutti.InventoryCatalog {
		return notHeld("resources")
	}
	return nil
}

func notHeld(what string) error {
	return tutti.Errorf(tutti.CodeConflict, "the server does not hold the %s of nodes; write into the fleet file: inventory: {%s: true}, push it with tutti code push, and converge",
		what, what)
}

// The method `answer` answers the query for one node. The result is nil if the node is not selected.
func (q *query) answer(ctx context.Context, a asked) (*api.QueriedNode, error) {
	out := &api.QueriedNode{Node: a.node.Name}
	chosen, err := q.on.Decide(a.node, nil, q.now)
	var facts map[string]any
	if err == nil && (chosen == selector.NeedsFacts || chosen == selector.Yes && q.of == api.QueryFacts) {
		lack := ""
		if facts, lack, err = readFacts(ctx, q.blobs, a); lack != "" {
			if chosen == selector.NeedsFacts {
				lack = "nobody knows whether --on selects the node: " + lack
			}
			q.found = true
			out.Unknown = lack
			return out, nil
		}
		if err == nil && chosen == selector.NeedsFacts {
			chosen, err = q.on.Decide(a.node, facts, q.now)
		}
	}
	if err != nil || chosen == selector.Yes {
		q.found = true
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		out.Unknown = plain.Words(err.Error())
		return out, nil
	case chosen != selector.Yes:
		return nil, nil //nolint:nilnil // the node is not selected
	}
	switch q.of {
	case api.QueryFacts:
		q.told(out, a.facts, a.old)
		err = q.row(out, a.node, "", facts)
	case api.QueryRuns:
		err = q.runs(out, a)
	default:
		if a.catalog == nil || a.catalog.Left != "" {
			out.Unknown = a.lacks(a.catalog)
			return out, nil
		}
		q.told(out, a.catalog, a.old)
		err = q.resources(ctx, out, a)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		out.Unknown = plain.Words(err.Error())
	}
	if len(out.Rows) == 0 && out.Unknown == "" && out.Old == "" {
		return nil, nil //nolint:nilnil // the node has no row for the query
	}
	return out, nil
}

// The method `told` notes which content the rows come from.
func (q *query) told(out *api.QueriedNode, held *tutti.Held, old string) {
	out.At, out.Environment, out.Run, out.Old = held.At, held.Environment, held.Run, old
}

// The method `lacks` returns the reason why the server has no content.
func (a asked) lacks(held *tutti.Held) string {
	if held != nil && held.Left != "" {
		return held.Left
	}
	return a.lack
}

// readFacts returns the facts of a node, or the reason why the server does not have them.
func readFacts(ctx context.Context, blobs tutti.Blobs, a asked) (facts map[string]any, lack string, err error) {
	if a.facts == nil || a.facts.Left != "" {
		return nil, a.lacks(a.facts), nil
	}
	facts, err = ReadFacts(ctx, blobs, a.facts)
	return facts, "", err
}

// ReadFacts reads facts that the server holds. The field Blob of the argument is set.
func ReadFacts(ctx context.Context, blobs tutti.Blobs, held *tutti.Held) (map[string]any, error) {
	content, err := open(ctx, blobs, tutti.InventoryFacts, held)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(content)
	if err != nil {
		return nil, err
	}
	return selector.ParseFacts(raw)
}

// The function `open` reads a blob of an inventory. The reader ends with an error if the node has sent more than it may.
func open(ctx context.Context, blobs tutti.Blobs, part tutti.InventoryPart, held *tutti.Held) (io.Reader, error) {
	raw, err := blobs.Get(ctx, held.Blob)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return nil, tutti.Errorf(tutti.CodeDamaged, "its %s was stored and is gone: the server's disk has lost it, or the node has sent another one just now; "+
			"ask again, and see: tutti doctor, on the server", part)
	}
	if err != nil {
		return nil, err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, damaged(part, err)
	}
	_, most := part.Most()
	return &bounded{unzipped, most, part}, nil
}

func damaged(part tutti.InventoryPart, err error) error {
	if tutti.CodeOf(err) == tutti.CodeDamaged { // it says so already
		return err
	}
	return tutti.Wrap(tutti.CodeDamaged, err, "the node has sent a damaged %s", part)
}

// bounded is a reader that returns an error after a number of bytes.
type bounded struct {
	from io.Reader
	left int64
	part tutti.InventoryPart
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n, damaged(b.part, errors.New("it is too large"))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(b.part, err)
	}
	return n, err
}

// The method `row` adds a row to the answer if the condition is true for it.
func (q *query) row(out *api.QueriedNode, node selector.Node, name string, row map[string]any) error {
	hidden, _ := row["hidden"].([]any)
	var secret []string
	for _, name := range hidden {
		if text, is := name.(string); is {
			secret = append(secret, text)
		}
	}
	holds, err := q.where.Holds(node, row, secret, q.now)
	if err != nil || !holds {
		return err
	}
	shown := api.QueryRow{Name: plain.Words(name)}
	values := []any{row}
	if len(q.show) > 0 {
		values = values[:0]
		for _, path := range q.show {
			if len(path) > 1 && path[0] == "parameters" && slices.Contains(secret, path[1]) {
				values = append(values, hiddenValue)
				continue
			}
			values = append(values, at(row, path))
		}
	}
	for _, value := range values {
		raw, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("a value cannot be shown: %w", err)
		}
		shown.Values = append(shown.Values, raw)
	}
	out.Rows = append(out.Rows, shown)
	return nil
}

// hiddenValue stands for a value that the node does not send.
const hiddenValue = "[hidden]"

// The function `at` returns the part of a value at a path, or nil.
func at(value any, path []string) any {
	for _, step := range path {
		of, is := value.(map[string]any)
		if !is {
			return nil
		}
		value = of[step]
	}
	return value
}

// The method `resources` adds the resources or classes of a node's catalog. If nobody knows
// whether the condition is true for a resource, the other resources are still in the answer.
func (q *query) resources(ctx context.Context, out *api.QueriedNode, a asked) error {
	content, err := open(ctx, q.blobs, tutti.InventoryCatalog, a.catalog)
	if err != nil {
		return err
	}
	all, err := readResources(content)
	if err != nil {
		return err
	}
	var unknown error
	count := 0
	for _, raw := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if q.of == api.QueryClasses && !bytes.Contains(raw, []byte(`"Class"`)) {
			continue
		}
		name, row, err := q.resource(raw)
		switch {
		case err != nil:
			return damaged(tutti.InventoryCatalog, err)
		case row == nil:
			continue
		}
		if err := q.row(out, a.node, name, row); err != nil {
			if count++; unknown == nil {
				unknown = fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if count > 1 {
		unknown = fmt.Errorf("%w (and %d more)", unknown, count-1)
	}
	return unknown
}

// The method `resource` returns a resource as a row. The row is nil if the query is about classes and this is none.
func (q *query) resource(raw json.RawMessage) (name string, row map[string]any, err error) {
	row, err = selector.ParseFacts(raw)
	if err != nil {
		return "", nil, err
	}
	kind, _ := row["type"].(string)
	title, _ := row["title"].(string)
	name = kind + "[" + title + "]"
	if q.of == api.QueryClasses {
		if kind != "Class" {
			return "", nil, nil
		}
		name = title
		row["name"] = title
		delete(row, "type")
		delete(row, "title")
	}
	for field, none := range map[string]any{"parameters": map[string]any{}, "hidden": []any{}, "tags": []any{}, "exported": false, "file": "", "line": int64(0)} {
		if row[field] == nil {
			row[field] = none
		}
	}
	return name, row, nil
}

// readResources returns the resources of {"resources": [...]}. The function reads all of it at once. A decoder that
// reads a stream would need quadratic time for a hostile content that consists of spaces.
func readResources(content io.Reader) ([]json.RawMessage, error) {
	var out struct {
		Resources *[]json.RawMessage `json:"resources"`
	}
	raw, err := io.ReadAll(content)
	if err == nil {
		err = damaged(tutti.InventoryCatalog, json.Unmarshal(raw, &out))
	}
	if err == nil && out.Resources == nil {
		err = damaged(tutti.InventoryCatalog, errors.New("it has no resources"))
	}
	if err != nil {
		return nil, err
	}
	return *out.Resources, nil
}

// The method `runs` adds the runs of a node that the server keeps, the latest first.
func (q *query) runs(out *api.QueriedNode, a asked) error {
	var unknown error
	slices.SortFunc(a.runs, func(a, b api.RunReport) int { return cmp.Or(b.EndedAt.Compare(a.EndedAt), cmp.Compare(b.Run, a.Run)) })
	for _, r := range a.runs {
		if err := q.row(out, a.node, string(r.Run), runRow(r)); err != nil && unknown == nil {
			unknown = fmt.Errorf("run %s: %w", r.Run, err)
		}
	}
	return unknown
}

// runRow returns a run as a row. Each name is always there, so that an expression needs no has(). A time that is not
// known is the zero time of Unix.
func runRow(r api.RunReport) map[string]any {
	began, seconds := r.ClaimedAt, 0.0
	if r.Result != nil && !r.Result.StartedAt.IsZero() {
		began = r.Result.StartedAt
		seconds = r.Result.EndedAt.Sub(began).Seconds()
	}
	message := r.Lost
	if r.Result != nil {
		message = cmp.Or(r.Result.Message, r.Lost)
	}
	return map[string]any{
		"run": string(r.Run), "job": string(r.Job), "step": string(r.Step), "plan": string(r.Plan), "by": r.By, "cause": r.Cause,
		"mode": string(r.Mode), "foreign": r.Foreign, "local": r.Local != nil, "code": string(r.Code), "environment": r.Environment,
		"puppet": r.Puppet, "outcome": string(r.Outcome), "reason": string(r.Reason), "message": message,
		"stopped": r.Stopped, "proved": r.Proved, "phase": r.Phase, "began_at": sometime(began), "ended_at": sometime(r.EndedAt), "seconds": seconds,
	}
}

func sometime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return t.UTC()
}
