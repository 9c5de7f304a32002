package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newGraphCommand(o *options) *cobra.Command {
	var dot, svg bool
	var output string
	cmd := &cobra.Command{
		Use:   "graph [TARGET]",
		Short: "Show which nodes read what other nodes publish",
		Long: `Shows the dependencies of the fleet, of a group, or of one node. The
dependencies follow from the records of the nodes' last runs. A record has the data that
the run published, and the data that it asked for.

There are three kinds of edges:

  soft      of exports, which exist after their node has compiled
  hard      of values, which exist after their node has applied
  explicit  of the fleet file (order)

With --svg the command draws a picture. In the picture, nodes that ask and publish the
same are one box. Edges lead to the right. Only in a cycle, which has a frame, some lead
back. Soft edges are dashed, hard edges are double, explicit edges are dotted.`,
		Example: `  tutti graph web
  tutti graph --svg --output fleet.svg
  tutti graph --dot | dot -Tsvg`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && !svg {
				return tutti.Errorf(tutti.CodeInvalid, "--output needs --svg")
			}
			if cmd.Flags().Changed("output") {
				if err := checkOutput(output); err != nil {
					return err
				}
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			target := ""
			if len(args) > 0 {
				target = args[0]
			}
			if svg {
				return drawGraph(cmd, o, server, target, output)
			}
			g, err := server.Graph(cmd.Context(), target)
			switch {
			case err != nil:
				return err
			case o.json:
				return printJSON(cmd.OutOrStdout(), g)
			case dot:
				return printDot(cmd.OutOrStdout(), g)
			}
			return printGraph(cmd.OutOrStdout(), g)
		},
	}
	cmd.Flags().BoolVar(&dot, "dot", false, "print the graph for Graphviz")
	cmd.Flags().BoolVar(&svg, "svg", false, "draw the graph as a picture for browsers and documents (SVG)")
	cmd.Flags().StringVar(&output, "output", "", "write the picture to this file, and replace an older picture (default: to stdout)")
	cmd.MarkFlagsMutuallyExclusive("dot", "svg")
	return cmd
}

// drawGraph prints the picture of a graph, or writes it to a file. With --json it prints the places of all boxes and edges.
func drawGraph(cmd *cobra.Command, o *options, server Server, target, output string) error {
	p, err := server.Picture(cmd.Context(), target)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if o.json {
		err = printJSON(&b, p)
	} else {
		err = printSVG(&b, p, target)
	}
	if err != nil {
		return err
	}
	if output == "" {
		_, err = b.WriteTo(cmd.OutOrStdout())
		return err
	}
	return saveSVG(output, b.Bytes())
}

// printGraph prints one edge in each line. Then printGraph prints the nodes without an edge, and the nodes that
// are not good.
func printGraph(w io.Writer, g api.Graph) error {
	linked := map[tutti.NodeName]bool{}
	var rows [][]string
	for _, e := range g.Edges {
		for _, n := range slices.Concat(e.From, e.To) {
			linked[n] = true
		}
		why := some(questions(e))
		if e.Explicit {
			why = "order of the fleet file"
		}
		rows = append(rows, []string{some(e.From), some(e.To), kind(e), why})
	}
	if err := table(w, "PUBLISHES\tREADS\tEDGE\tQUESTIONS", rows); err != nil {
		return err
	}
	var alone, bad []tutti.NodeName
	for _, n := range g.Nodes {
		if !linked[n.Node] {
			alone = append(alone, n.Node)
		}
		if !n.Good {
			bad = append(bad, n.Node)
		}
	}
	if len(alone) > 0 {
		fmt.Fprintf(w, "without an edge: %s\n", some(alone))
	}
	if len(bad) > 0 {
		fmt.Fprintf(w, "not good: %s\n", some(bad))
	}
	return nil
}

func kind(e api.GraphEdge) string {
	switch {
	case e.Explicit:
		return "explicit"
	case e.Hard:
		return "hard"
	}
	return "soft"
}

func questions(e api.GraphEdge) []string {
	var out []string
	for _, q := range e.Questions {
		out = append(out, question(q))
	}
	return out
}

// printDot prints the graph in the format of Graphviz. Nodes that are not good are red. Soft edges are dashed, and
// explicit edges are blue. Edges between many nodes go through one extra vertex. So if n nodes all read from each
// other, only 2n lines are needed.
func printDot(w io.Writer, g api.Graph) error {
	var b strings.Builder
	b.WriteString("digraph tutti {\n  rankdir=LR;\n  node [shape=box];\n")
	for _, n := range g.Nodes {
		style := ""
		if !n.Good {
			style = " [color=red]"
		}
		fmt.Fprintf(&b, "  %s%s;\n", dotText(string(n.Node)), style)
	}
	for i, e := range g.Edges {
		style := map[string]string{"soft": "style=dashed", "hard": "style=solid", "explicit": "style=bold, color=blue"}[kind(e)]
		label := strings.Join(questions(e), "\n")
		if e.Explicit {
			label = "order"
		}
		if len(e.From) == 1 && len(e.To) == 1 {
			fmt.Fprintf(&b, "  %s -> %s [%s, label=%s];\n", dotText(string(e.From[0])), dotText(string(e.To[0])), style, dotText(label))
			continue
		}
		hub := fmt.Sprintf("q%d", i)
		fmt.Fprintf(&b, "  %s [shape=ellipse, label=%s];\n", hub, dotText(label))
		for _, n := range e.From {
			fmt.Fprintf(&b, "  %s -> %s [%s, arrowhead=none];\n", dotText(string(n)), hub, style)
		}
		for _, n := range e.To {
			fmt.Fprintf(&b, "  %s -> %s [%s];\n", hub, dotText(string(n)), style)
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// dotText quotes a text for Graphviz.
func dotText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
