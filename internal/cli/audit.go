package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/audit"
	"github.com/tutti-project/tutti/internal/durable"
)

func newAuditCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Show who did what, and verify the log"}
	cmd.AddCommand(newAuditListCommand(o), newAuditVerifyCommand(o), newAuditWhoCouldCommand(o))
	return cmd
}

// auditFilter selects the acts to list.
type auditFilter struct {
	since  time.Time
	who    string
	denied bool
}

func (f auditFilter) admits(a act) bool {
	_, name, _ := strings.Cut(a.Who, ":")
	return !a.At.Before(f.since) && (f.who == "" || f.who == a.Who || f.who == name) && (!f.denied || a.Denied)
}

func newAuditListCommand(o *options) *cobra.Command {
	var after uint64
	var since string
	var f auditFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what operators did, denials, joins, leaves and ends of jobs",
		Example: `  tutti audit list --since 36h
  tutti audit list --who operator:ada --denied`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.since, err = parseSince("--since", since, time.Now()); err != nil {
				return err
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			var rows [][]string
			acts := newEncoder(cmd.OutOrStdout())
			err = server.ReadAudit(cmd.Context(), api.ReadAudit{After: after, Acts: true}, func(e api.AuditEntry) error {
				a, err := actOf(e)
				if err != nil || !f.admits(a) {
					return err
				}
				if o.json {
					return acts.Encode(a)
				}
				rows = append(rows, []string{fmt.Sprint(a.Seq), a.At.Local().Format(time.DateTime), a.Who, a.What})
				return nil
			})
			if err != nil || o.json {
				return err
			}
			return table(cmd.OutOrStdout(), "SEQ\tTIME\tWHO\tWHAT", rows)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&after, "after", 0, "only entries after this sequence number")
	flags.StringVar(&since, "since", "", "only entries since then: a time (2026-07-01, 2026-07-01T12:00:00Z) or how long ago (36h)")
	flags.StringVar(&f.who, "who", "", "only what this operator or node did or tried: operator:ada, node:web, or the name alone")
	flags.BoolVar(&f.denied, "denied", false, "only what was denied")
	cmd.MarkFlagsMutuallyExclusive("after", "since")
	return cmd
}

// parseSince parses the value of a flag: a time, a day, or a duration before now.
func parseSince(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, tutti.Errorf(tutti.CodeInvalid, "%s %q must be a time like 2026-07-01T12:00:00Z, a day, or a duration like 36h", flag, text)
}

// auditHead is the end of the log at the last verification. The head is stored
// in the operator's directory.
type auditHead struct {
	Seq  uint64       `json:"seq"`
	Link tutti.Digest `json:"link"`
	At   time.Time    `json:"at"` // time of the verification
}

const auditHeadFile = "audit.head"

// The type `verified` is the result of a verification.
type verified struct {
	Entries int          `json:"entries"`
	Bare    int          `json:"bare"` // number of entries whose content is gone, so only a digest is left
	First   uint64       `json:"first"`
	Last    uint64       `json:"last"`
	Before  tutti.Digest `json:"before,omitempty"` // link before the first entry
	Head    tutti.Digest `json:"head"`
	Known   *auditHead   `json:"contains,omitempty"` // the stored head; nil if the log does not contain it
}

func newAuditVerifyCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Verify that nobody changed, removed or moved an entry of the log",
		Long: `Reads all entries of the log and verifies the link of each entry to the
one before it. Then the log must contain the last entry of the previous verification,
which the operator's directory remembers (audit.head). The command does both checks
itself and does not trust the server. The log may no longer have entries older than 400
days.

When the server drops old runs and what they published, it keeps only their digests. The
command prints how many entries are only digests. A server that an attacker has taken
over can hide an act that way, unless you keep a copy (tutti server --audit-syslog).`,
		Example: "  tutti audit verify",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file := filepath.Join(o.conn.OperatorDir, auditHeadFile)
			known, err := readAuditHead(file)
			if err != nil {
				return err
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			v := verification{known: known}
			if err := server.ReadAudit(cmd.Context(), api.ReadAudit{}, v.add); err != nil {
				return err
			}
			now := time.Now()
			if err := v.end(now); err != nil {
				return err
			}
			remembered, err := remember(file, auditHead{v.chain.Last, v.chain.Link, now.UTC()})
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), v.result())
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), v.text(remembered))
			return err
		},
	}
}

func readAuditHead(file string) (*auditHead, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var h auditHead
	if err == nil {
		err = json.Unmarshal(raw, &h)
	}
	if err == nil && (h.Seq == 0 || h.Link.Validate() != nil) {
		err = errors.New("the sequence or the link is missing")
	}
	return &h, tutti.Wrap(tutti.CodeInvalid, err, "%s was not written by tutti audit verify; if you know why, remove it", file)
}

// The function `remember` writes the head to a file, and returns false if there is no
// operator's directory.
func remember(file string, h auditHead) (bool, error) {
	if _, err := os.Stat(filepath.Dir(file)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	raw, err := json.Marshal(h)
	if err != nil {
		return false, err
	}
	return true, durable.WriteFile(file, append(raw, '\n'), 0o600)
}

// verification checks the entries of a log, and looks for the stored head.
type verification struct {
	known  *auditHead
	chain  audit.Chain
	before tutti.Digest
	found  bool
}

func (v *verification) add(e api.AuditEntry) error {
	if v.chain.Count == 0 {
		v.before = e.Before
	}
	if err := v.chain.Add(e); err != nil {
		return tutti.Wrap("", err, "the log was changed")
	}
	if v.known != nil && v.known.Seq == e.Seq {
		if v.found = v.known.Link == e.Link; !v.found {
			return tutti.Errorf(tutti.CodeDamaged, "the log was changed: entry %d has the link %s, but had %s when it was verified on %s",
				e.Seq, e.Link, v.known.Link, v.when())
		}
	}
	return nil
}

func (v *verification) when() string { return v.known.At.Local().Format(time.DateTime) }

// The method `end` returns an error if the log does not contain the stored head.
func (v *verification) end(now time.Time) error {
	switch {
	case v.known == nil && v.chain.Count == 0:
		return tutti.Errorf(tutti.CodeNotFound, "the log has no entries")
	case v.known == nil || v.found:
		return nil
	case v.chain.Last < v.known.Seq:
		return tutti.Errorf(tutti.CodeDamaged, "the log was changed: it ends at entry %d, but had entry %d when it was verified on %s; "+
			"the log was cut off, or an old copy of the log was restored", v.chain.Last, v.known.Seq, v.when())
	case v.chain.First > v.known.Seq && now.Sub(v.known.At) > audit.Keep:
		return nil
	}
	return tutti.Errorf(tutti.CodeDamaged, "the log was changed: entry %d existed when the log was verified on %s, but is gone; the log has entries %d to %d now",
		v.known.Seq, v.when(), v.chain.First, v.chain.Last)
}

func (v *verification) result() verified {
	out := verified{Entries: v.chain.Count, Bare: v.chain.Bare, First: v.chain.First, Last: v.chain.Last, Before: v.before, Head: v.chain.Link}
	if v.found {
		out.Known = v.known
	}
	return out
}

func (v *verification) text(remembered bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "verified %s entries, %s to %s", thousands(uint64(v.chain.Count)), thousands(v.chain.First), thousands(v.chain.Last))
	if v.chain.Bare > 0 {
		fmt.Fprintf(&b, " (%s only as a digest)", thousands(uint64(v.chain.Bare)))
	}
	switch {
	case v.found:
		fmt.Fprintf(&b, "; contains the head of %s (entry %s)", v.when(), thousands(v.known.Seq))
	case v.known != nil:
		fmt.Fprintf(&b, "; the head of %s is older than the first entry that is kept", v.when())
	default:
		b.WriteString("; there is no earlier head")
	}
	if v.before != "" {
		fmt.Fprintf(&b, "; the entries before %s are not kept", thousands(v.chain.First))
	}
	fmt.Fprintf(&b, "; head now %s\n", v.chain.Link)
	if !remembered {
		b.WriteString("The head is not stored, because there is no operator's directory here.\n")
	}
	return b.String()
}

// The function `thousands` formats a number with commas.
func thousands(n uint64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
