package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// querier is a command that queries what the server holds.
type querier struct {
	*options
	in  api.Query
	csv bool
	// row is the name of a row in expressions and in JSON. head is the title of the column with the row's name.
	row, head string
	shows     []string // the paths that a table shows if there is no --show
}

func newQueryCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query",
		Short: "List facts, resources, classes and runs that the server holds",
		Long: `Lists what the server holds about the nodes, without asking the nodes. The fleet
file says what the server holds: inventory: {facts: true, resources: true}

--on selects nodes, see tutti puppet --help. --where is an expression (CEL) that is
true for the rows that the command shows. --show names the parts of a row that are
columns, as paths with points. The function olderThan(a, b) compares versions in the
order of Puppet's versioncmp.

The answer is as old as the column AGE says. The command names each node whose answer
is unknown, with the reason. An expression that fails for a node makes its answer
unknown, not empty.

Exit code:
   0  the answer is complete
   9  the answer is unknown for some nodes`,
	}
	cmd.AddCommand(
		(&querier{options: o, in: api.Query{Of: api.QueryFacts}, row: "facts", shows: []string{"os.name", "os.release.full", "kernelrelease"}}).command(&cobra.Command{
			Use: "facts", Short: "List the facts of nodes, one row for each node",
			Long: `Lists the facts that each node had at its last collection. In --where, the facts
are the variable "facts".`,
			Example: `  tutti query facts --show os.family,networking.ip
  tutti query facts --where 'facts.memory.system.total_bytes < 4e9'
  tutti query facts --on '"web" in groups' --show os.release.major --csv`,
		}),
		(&querier{options: o, in: api.Query{Of: api.QueryResources}, row: "resource", head: "RESOURCE", shows: []string{"file", "line"}}).command(&cobra.Command{
			Use: "resources", Short: "List the resources of catalogs, one row for each resource",
			Long: `Lists the resources in the catalog of each node's last run in mode apply. In --where, a
resource is the variable "resource". It has type, title, tags, file, line, exported, parameters
and hidden. The list hidden names the parameters whose values the node does not send,
because they may be secrets.`,
			Example: `  tutti query resources --where 'resource.type == "Service"' --show parameters.ensure
  tutti query resources --where 'resource.title == "nginx" && olderThan(resource.parameters.ensure, "1.24")'`,
		}),
		(&querier{options: o, in: api.Query{Of: api.QueryClasses}, row: "class", head: "CLASS", shows: []string{"file", "line"}}).command(&cobra.Command{
			Use: "classes", Short: "List the classes of catalogs, one row for each class",
			Long: `Lists the classes in the catalog of each node's last run in mode apply. In --where, a
class is the variable "class". It has name, tags, file, line, parameters and hidden.`,
			Example: `  tutti query classes --where 'class.name == "Apache"' --show parameters.mpm_module`,
		}),
		(&querier{options: o, in: api.Query{Of: api.QueryRuns}, row: "run", head: "RUN", shows: []string{"job", "mode", "outcome", "reason", "began_at", "seconds"}}).command(&cobra.Command{
			Use: "runs", Short: "List the runs that the server keeps, one row for each run",
			Long: `Lists the runs of Tutti and the foreign runs. In --where, a run is the variable "run".
It has run, job, step, plan, by, cause, mode, foreign, local, code, environment, puppet,
outcome, reason, message, stopped, proved, phase, began_at, ended_at and seconds.`,
			Example: `  tutti query runs --where 'run.outcome == "failed" && now - run.ended_at < duration("24h")'
  tutti query runs --where 'run.seconds > 300.0' --show environment,seconds`,
		}))
	return cmd
}

// The method `command` makes a command that asks the server and prints the answer.
func (q *querier) command(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.Flags().StringVar(&q.in.On, "on", "", "which nodes: an expression, see tutti puppet --help")
	cmd.Flags().StringVar(&q.in.Where, "where", "", "which rows: an expression")
	cmd.Flags().StringSliceVar(&q.in.Show, "show", nil, "which parts of a row: paths with points, separated by commas")
	cmd.Flags().BoolVar(&q.csv, "csv", false, "print comma-separated values")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if q.csv && q.json {
			return tutti.Errorf(tutti.CodeInvalid, "--csv and --json do not go together; usage: %s", cmd.UseLine())
		}
		server, err := q.connect()
		if err != nil {
			return err
		}
		return q.query(cmd, server)
	}
	return cmd
}

func (q *querier) query(cmd *cobra.Command, server api.Inventories) error {
	in := q.in
	if len(in.Show) == 0 && !q.json {
		in.Show = q.shows
	}
	about := &notes{}
	var out rowPrinter
	switch {
	case q.json:
		out = &jsonRows{w: cmd.OutOrStdout(), row: q.row, show: in.Show}
	case q.csv:
		out = &csvRows{w: csv.NewWriter(cmd.OutOrStdout()), head: q.columns("AT", in.Show), of: q}
	default:
		out = &tableRows{w: cmd.OutOrStdout(), head: q.columns("AGE", in.Show), of: q, now: time.Now()}
	}
	err := out.begin()
	if err == nil {
		err = server.Query(cmd.Context(), in, func(n api.QueriedNode) error {
			if n.Unknown != "" {
				about.unknown.add(n.Unknown, n.Node)
			}
			if n.Old != "" {
				about.old.add(n.Old, n.Node)
			}
			return out.node(n)
		})
	}
	if end := out.end(err != nil); err == nil {
		err = end
	}
	if err != nil {
		return err
	}
	for _, reason := range about.old.order {
		printLine(cmd.ErrOrStderr(), "%s may have changed: %s: %s\n", count(len(about.old.nodes[reason]), "node"), tutti.OneLine(reason), some(about.old.nodes[reason]))
	}
	for _, reason := range about.unknown.order {
		printLine(cmd.ErrOrStderr(), "unknown for %s: %s: %s\n", count(len(about.unknown.nodes[reason]), "node"), tutti.OneLine(reason), some(about.unknown.nodes[reason]))
	}
	if len(about.unknown.order) > 0 {
		return CommandExit(ExitPartial)
	}
	return nil
}

// The method `columns` returns the titles of the columns.
func (q *querier) columns(at string, show []string) []string {
	out := []string{"NODE"}
	if q.in.Of != api.QueryRuns {
		out = append(out, at)
	}
	if q.head != "" {
		out = append(out, q.head)
	}
	for _, path := range show {
		out = append(out, strings.ToUpper(path))
	}
	return out
}

// The method `cells` returns the cells of a row, in the order of the columns.
func (q *querier) cells(n api.QueriedNode, row api.QueryRow, at, none string) []string {
	out := []string{string(n.Node)}
	if q.in.Of != api.QueryRuns {
		out = append(out, at)
	}
	if q.head != "" {
		out = append(out, row.Name)
	}
	for _, raw := range row.Values {
		var text string
		switch err := json.Unmarshal(raw, &text); {
		case err != nil:
			text = string(raw)
		case string(raw) == "null":
			text = none
		}
		out = append(out, text)
	}
	return out
}

// notes has the nodes by what the answer says about them.
type notes struct{ unknown, old byReason }

// byReason has nodes by a text, in the order of the first node.
type byReason struct {
	order []string
	nodes map[string][]tutti.NodeName
}

func (b *byReason) add(reason string, node tutti.NodeName) {
	if b.nodes == nil {
		b.nodes = map[string][]tutti.NodeName{}
	}
	if b.nodes[reason] == nil {
		b.order = append(b.order, reason)
	}
	b.nodes[reason] = append(b.nodes[reason], node)
}

// rowPrinter prints the rows of a query.
type rowPrinter interface {
	begin() error
	node(n api.QueriedNode) error
	// end prints the rest. If the query failed, an answer that has not begun stays empty.
	end(failed bool) error
}

// tableRows prints a table for people.
type tableRows struct {
	w    io.Writer
	head []string
	of   *querier
	now  time.Time
	rows [][]string
}

func (*tableRows) begin() error { return nil }

func (t *tableRows) node(n api.QueriedNode) error {
	for _, row := range n.Rows {
		cells := t.of.cells(n, row, ago(n.At, t.now), "-")
		for i, cell := range cells {
			cells[i] = orDash(oneLine(cell, maxValue))
		}
		t.rows = append(t.rows, cells)
	}
	return nil
}

func (t *tableRows) end(bool) error {
	if len(t.rows) == 0 {
		return nil
	}
	return table(t.w, strings.Join(t.head, "\t"), t.rows)
}

// csvRows prints the rows as RFC 4180 says. A part that a row does not have is an empty field.
type csvRows struct {
	w    *csv.Writer
	head []string
	of   *querier
}

func (c *csvRows) begin() error {
	lower := slices.Clone(c.head)
	for i, title := range lower {
		lower[i] = strings.ToLower(title)
	}
	return c.w.Write(lower)
}

func (c *csvRows) node(n api.QueriedNode) error {
	for _, row := range n.Rows {
		if err := c.w.Write(c.of.cells(n, row, n.At.UTC().Format(time.RFC3339), "")); err != nil {
			return err
		}
	}
	return nil
}

func (c *csvRows) end(failed bool) error {
	if failed {
		return nil
	}
	c.w.Flush()
	return c.w.Error()
}

// jsonRows prints a list with an object for each row, and an object for each node whose answer is unknown.
type jsonRows struct {
	w    io.Writer
	row  string
	show []string
	any  bool
}

func (*jsonRows) begin() error { return nil }

func (j *jsonRows) node(n api.QueriedNode) error {
	base := map[string]any{"node": n.Node}
	if !n.At.IsZero() {
		base["at"], base["environment"], base["held_of"] = n.At, n.Environment, n.Run
	}
	if n.Old != "" {
		base["old"] = n.Old
	}
	for _, row := range n.Rows {
		if row.Name != "" {
			base["name"] = row.Name
		}
		if len(j.show) > 0 {
			values := map[string]json.RawMessage{}
			for i, path := range j.show {
				values[path] = row.Values[i]
			}
			base["values"] = values
		} else {
			base[j.row] = row.Values[0]
		}
		if err := j.item(base); err != nil {
			return err
		}
	}
	if n.Unknown == "" {
		return nil
	}
	return j.item(map[string]any{"node": n.Node, "unknown": n.Unknown})
}

func (j *jsonRows) item(v any) error {
	separator := "[\n  "
	if j.any {
		separator = ",\n  "
	}
	j.any = true
	raw, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(j.w, "%s%s", separator, raw)
	}
	return err
}

func (j *jsonRows) end(failed bool) error {
	text := "[]\n"
	switch {
	case j.any:
		text = "\n]\n"
	case failed:
		return nil
	}
	_, err := io.WriteString(j.w, text)
	return err
}
