package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The type `act` is an entry of the audit trail, in the form for people and programs. If the server denied an
// action, `Who` is the caller that wanted to do it.
type act struct {
	Seq    uint64          `json:"seq"`
	At     time.Time       `json:"at"`
	Who    string          `json:"who"`
	What   string          `json:"what"`
	Denied bool            `json:"denied,omitempty"`
	Event  json.RawMessage `json:"event"`
}

// In a line for other systems, `Who` and `What` have at most maxAct bytes each. With this limit the line always fits
// into one datagram of syslog.
const maxAct = 4 << 10

// AuditLine returns an act as a line of JSON for other systems. The line does not contain the event itself, because
// an event may contain values. AuditLine cuts long texts.
func AuditLine(entry api.AuditEntry) ([]byte, error) {
	a, err := actOf(entry)
	if err != nil {
		return nil, err
	}
	return json.Marshal(auditLine{a.Seq, a.At, tutti.Plain(a.Who, maxAct), tutti.Plain(a.What, maxAct), a.Denied, entry.Link})
}

type auditLine struct {
	Seq    uint64       `json:"seq"`
	At     time.Time    `json:"at"`
	Who    string       `json:"who"`
	What   string       `json:"what"`
	Denied bool         `json:"denied,omitempty"`
	Link   tutti.Digest `json:"link"` // the link of the entry, which `tutti audit verify` checks
}

func actOf(entry api.AuditEntry) (act, error) {
	e, err := tutti.ViewEvent(entry.Raw)
	if err != nil {
		return act{}, tutti.Wrap("", err, "audit entry %d", entry.Seq)
	}
	a := act{Seq: entry.Seq, At: e.At, Who: e.By, What: what(e.Body), Event: entry.Raw}
	if b, ok := e.Body.(*tutti.Denied); ok {
		a.Who, a.Denied = b.Who, true
	}
	return a, nil
}

// The function `what` returns a text about the action, without the name of the person.
func what(body tutti.Body) string {
	if act := eventViewOf(body).act; act != nil {
		return act(body)
	}
	return body.Kind() + " " + body.ID()
}

// The function `decisions` summarizes the decisions of nodes about a request. --json shows all decisions.
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
