package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// act is an entry of the audit trail for people and programs. Who is whoever
// tried, if it was denied.
type act struct {
	Seq    uint64          `json:"seq"`
	At     time.Time       `json:"at"`
	Who    string          `json:"who"`
	What   string          `json:"what"`
	Denied bool            `json:"denied,omitempty"`
	Event  json.RawMessage `json:"event"`
}

func actOf(entry tutti.AuditEntry) (act, error) {
	var e tutti.Event
	if err := json.Unmarshal(entry.Raw, &e); err != nil {
		return act{}, tutti.Wrap("", err, "audit entry %d", entry.Seq)
	}
	a := act{Seq: entry.Seq, At: e.At, Who: e.By, What: what(e.Body), Event: entry.Raw}
	if b, ok := e.Body.(*tutti.Denied); ok {
		a.Who, a.Denied = b.Who, true
	}
	return a, nil
}

// what says what happened, without who.
func what(body tutti.Body) string {
	switch b := body.(type) {
	case *tutti.Denied:
		return fmt.Sprintf("denied: %s: %s", b.What, b.Reason)
	case *tutti.FleetSet:
		return "set the fleet file of " + b.Fleet.Name
	case *tutti.CodePushed:
		return fmt.Sprintf("pushed code for %s: %.19s", b.Environment, b.Code)
	case *tutti.TokenCreated:
		return fmt.Sprintf("created token %s for %s%s", b.Token, b.Name, inGroups(b.Groups))
	case *tutti.TokenRevoked:
		return "revoked token " + string(b.Token)
	case *tutti.NodeEnrolled:
		return fmt.Sprintf("node %s joined%s", b.Node, inGroups(b.Groups))
	case *tutti.NodeReplaceable:
		return "let node " + string(b.Node) + " be replaced"
	case *tutti.NodeRemoved:
		return "removed node " + string(b.Node)
	case *tutti.JobStarted:
		return fmt.Sprintf("started job %s (plan %s, mode %s)", b.Job, b.Plan.Name, b.Mode)
	case *tutti.JobCancelled:
		return because("cancelled job "+string(b.Job), b.Reason)
	case *tutti.JobFinished:
		return because(fmt.Sprintf("job %s %s", b.Job, b.Verdict), b.Message)
	case *tutti.JobRetired:
		return "let job " + string(b.Job) + " go"
	case *tutti.ValueSet:
		return "set value " + b.Key
	case *tutti.ValueUnset:
		return "unset value " + b.Key
	case *tutti.Paused:
		return because("paused "+targetName(b.Target)+untilText(b.Until), b.Reason)
	case *tutti.Unpaused:
		return "unpaused " + targetName(b.Target)
	case *tutti.RemoteAsked:
		return because(fmt.Sprintf("asks %d nodes to %s (%s)", len(b.Nodes), b.Action, b.On), b.Message)
	case *tutti.RemoteAnswered:
		return fmt.Sprintf("asked for %s (%s): %s", strings.TrimSpace(string(b.Action)+" "+b.What), b.On, decisions(b.Decisions))
	case *tutti.OperatorIssued:
		return fmt.Sprintf("let operator %s in until %s%s", b.Operator, b.Expires.Local().Format(time.DateOnly), withCodeKey(b))
	case *tutti.OperatorRevoked:
		return because("revoked operator "+b.Operator, b.Reason)
	}
	return body.Kind() + " " + body.ID()
}

// decisions are what became of a question to nodes. All of them are in --json.
func decisions(all []tutti.RemoteDecision) string {
	var out []string
	for _, d := range all {
		text := fmt.Sprintf("%d %s", d.Count, d.Verdict)
		if d.Rule != "" {
			text += " by " + d.Rule
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

func inGroups(groups []tutti.GroupName) string {
	if len(groups) == 0 {
		return ""
	}
	return " in " + joined(groups)
}

func untilText(until time.Time) string {
	if until.IsZero() {
		return ""
	}
	return " until " + until.Local().Format(time.DateTime)
}

func withCodeKey(b *tutti.OperatorIssued) string {
	if b.CodeKey {
		return ", with the code-signing key"
	}
	return ""
}
