package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fleet"
)

func addDryRun(cmd *cobra.Command, dryRun *bool) {
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "change nothing: show which nodes would run, and when")
}

// The method `effect` asks the server what a change would cause. With --yes, the method
// sends no request.
func (o *options) effect(cmd *cobra.Command, server Server, key string, value json.RawMessage) (api.Effect, error) {
	if o.yes {
		return api.Effect{}, nil
	}
	return server.Effect(cmd.Context(), key, value)
}

// The function `wide` reports whether a change causes so many runs that a person must
// confirm it.
func wide(e api.Effect) bool { return e.Reactive && e.Runs > e.AskAbove }

func (o *options) showEffect(cmd *cobra.Command, server Server, key string, value json.RawMessage) error {
	e, err := server.Effect(cmd.Context(), key, value)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), e)
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), effectText(e))
	return err
}

// effectLine describes an effect in one line, for a question.
func effectLine(e api.Effect) string {
	text := fmt.Sprintf("this directly causes %s", runsText(e.Runs))
	if !e.Reactive {
		return text
	}
	var parts []string
	for _, r := range e.When {
		parts = append(parts, fmt.Sprintf("%d %s", r.Runs, whenText(e, r.When)))
	}
	return text + " (" + strings.Join(parts, ", ") + ")"
}

// effectText describes an effect with its nodes.
func effectText(e api.Effect) string {
	if e.Runs == 0 {
		return "No run: no node has read it, or every reader would get the same answer.\n"
	}
	text := strings.Replace(effectLine(e), "this directly causes", "Directly, this causes", 1)
	if !e.Reactive {
		text += " with the next `tutti converge`; nodes do not run by themselves"
	}
	text += ":\n"
	for _, r := range e.When {
		var names []string
		for _, n := range r.Nodes {
			names = append(names, string(n))
		}
		if more := r.Runs - len(names); more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		line := strings.Join(names, ", ")
		if e.Reactive {
			line = whenText(e, r.When) + ": " + line
		}
		text += "  " + line + "\n"
	}
	return text + "The data that these runs publish may cause more runs.\n"
}

func whenText(e api.Effect, when tutti.ReactionTime) string {
	if when == tutti.ReactWindow {
		return "window (within " + fleet.Duration(e.Wide) + ")"
	}
	return string(when)
}

func runsText(n int) string {
	if n == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", n)
}
