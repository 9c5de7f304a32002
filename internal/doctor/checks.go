package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

const (
	maxSkew = 10 * time.Second
	silent  = time.Minute

	certnameCheck = "certname"
)

// checks are all checks. For each check, there is a test in which the check finds
// something.
var checks = []check{
	{"unit", eachProcess(unit)},
	{"binary", eachProcess(binary)},
	{"processes", eachProcess(processes)},
	{"disk", eachProcess(disk)},
	{"permissions", eachProcess(permissions)},
	{"credentials", credentials},
	{"reach", eachLink(reach)},
	{"ca", eachLink(wrongCA)},
	{"clock", clock},
	{"log", serverLog},
	{"sync", syncAlways},
	{"backup", backup},
	{"rotation", rotation},
	{"content", content},
	{"reports", reports},
	{"ask", ask},
	{"nodes", nodes},
	{"puppet", eachNode(noPuppet)},
	{certnameCheck, eachNode(func(n Node) []Finding { return OfNames(n.Name, n.Certname) })},
	{"module", eachNode(module)},
	{"locks", eachNode(locks)},
	{"runs", eachNode(runs)},
	{"facts", eachNode(slowFacts)},
}

func eachProcess(look func(p Process, verb string) []Finding) func(Facts) []Finding {
	return func(f Facts) (out []Finding) {
		if f.Server != nil {
			out = append(out, look(f.Server.Process, "server")...)
		}
		if f.Node != nil {
			out = append(out, look(f.Node.Process, "agent")...)
		}
		return out
	}
}

func eachLink(look func(l Link) []Finding) func(Facts) []Finding {
	return func(f Facts) (out []Finding) {
		if f.Node != nil {
			out = append(out, look(f.Node.Link)...)
		}
		if f.Operator != nil {
			out = append(out, look(f.Operator.Link)...)
		}
		return out
	}
}

func eachNode(look func(n Node) []Finding) func(Facts) []Finding {
	return func(f Facts) []Finding {
		if f.Node == nil {
			return nil
		}
		return look(*f.Node)
	}
}

func one(what, means, mend string) []Finding {
	return []Finding{{What: what, Means: means, Mend: mend}}
}

func unit(p Process, verb string) []Finding {
	switch {
	case !p.Running && p.Unit != "":
		what := fmt.Sprintf("the %s of %s does not run", verb, p.Dir)
		if p.Said != "" {
			what += "; it said: " + p.Said
		}
		return one(what, "it does no work until it runs", "systemctl start "+p.Unit+"; journalctl -u "+p.Unit)
	case !p.Running:
		return one(fmt.Sprintf("the %s of %s does not run", verb, p.Dir), "it does no work until it runs", fmt.Sprintf("tutti %s --dir %s", verb, p.Dir))
	case p.Unit != "" && !p.Enabled:
		return one(p.Unit+" is not enabled", "after the next boot it does not run", "systemctl enable "+p.Unit)
	}
	return nil
}

func binary(p Process, verb string) []Finding {
	if !p.Replaced {
		return nil
	}
	mend := fmt.Sprintf("start it again: tutti %s --dir %s", verb, p.Dir)
	if p.Unit != "" {
		mend = "systemctl restart " + p.Unit
	}
	return one(fmt.Sprintf("the %s runs a binary that is no longer on the disk", verb), "the process was not restarted after an upgrade: it is still the old release", mend)
}

func processes(p Process, verb string) []Finding {
	if len(p.Pids) < 2 {
		return nil
	}
	return one(fmt.Sprintf("%d processes run as the %s of %s: %v", len(p.Pids), verb, p.Dir, p.Pids),
		"only the process with the lock works; the others retry without end", "end the processes that no unit started: kill PID")
}

func disk(p Process, verb string) []Finding {
	if p.Free >= 2*p.Keeps {
		return nil
	}
	return one(fmt.Sprintf("%d MiB are free in %s", p.Free>>20, p.Dir),
		fmt.Sprintf("below %d MiB the %s takes no new work", p.Keeps>>20, verb), "free some space: du -x "+p.Dir)
}

func permissions(p Process, _ string) []Finding {
	if len(p.Exposed) == 0 {
		return nil
	}
	return one("others may read "+strings.Join(p.Exposed, ", "),
		"anyone who has read these keys can act as this machine; the process refuses to start with them", "chmod go= "+strings.Join(p.Exposed, " ")+"; assume that others know the keys")
}

func credentials(f Facts) (out []Finding) {
	var all []Credential
	if f.Server != nil {
		all = append(all, f.Server.Credentials...)
	}
	if f.Node != nil {
		all = append(all, f.Node.Credentials...)
	}
	if f.Operator != nil {
		all = append(all, f.Operator.Credentials...)
	}
	for _, c := range all {
		left := c.Ends.Sub(f.Now)
		switch {
		case left <= 0:
			out = append(out, Finding{What: fmt.Sprintf("%s (%s) ended %s", c.Name, c.File, c.Ends.Format(time.DateOnly)), Means: "nobody accepts it any more", Mend: c.Mend})
		case left < c.Notice:
			out = append(out, Finding{What: fmt.Sprintf("%s (%s) ends %s", c.Name, c.File, c.Ends.Format(time.DateOnly)), Means: "it should have been renewed by now", Mend: c.Mend})
		}
	}
	return out
}

func reach(l Link) []Finding {
	if l.Err == nil || l.WrongCA {
		return nil
	}
	return one(fmt.Sprintf("%s cannot be reached: %v", l.Address, l.Err),
		"no connection gets through: a wrong name, a route, a firewall, or the server is down", "on the server: tutti doctor; here: getent hosts and ss -tn for "+l.Address)
}

func wrongCA(l Link) []Finding {
	if !l.WrongCA {
		return nil
	}
	return one(fmt.Sprintf("the server at %s has no certificate of this fleet's CA: %v", l.Address, l.Err),
		"the server belongs to another fleet or was made again, or an attacker intercepts the connection; this machine sends nothing to this server",
		"if the fleet's CA was rotated: tutti join --again with a new token; if the server was made again: tutti leave --offline, then tutti join")
}

func clock(f Facts) []Finding {
	for _, l := range links(f) {
		if l.Time.IsZero() {
			continue
		}
		if skew := f.Now.Sub(l.Time); skew.Abs() > maxSkew {
			return one(fmt.Sprintf("the clock here is %s off that of %s", skew.Round(time.Second), l.Address),
				"times in lists and logs mislead; certificates seem to begin late or to have ended", "timedatectl set-ntp true")
		}
	}
	return nil
}

func links(f Facts) (out []Link) {
	if f.Node != nil {
		out = append(out, f.Node.Link)
	}
	if f.Operator != nil {
		out = append(out, f.Operator.Link)
	}
	return out
}

func serverLog(f Facts) []Finding {
	if f.Server == nil || f.Server.Log == nil {
		return nil
	}
	return one(f.Server.Log.Error(), "acknowledged events are missing: the server does not start on such a log", "tutti server restore FILE --dir NEW")
}

func syncAlways(f Facts) []Finding {
	if f.Server == nil || !f.Server.Running || f.Server.SyncAlways {
		return nil
	}
	return one("the server does not fsync each write", "a power loss destroys acknowledged events", "start it with this release's unit: systemctl restart tutti-server")
}

// backupAge is a day, and some more time for a daily timer to finish.
const backupAge = 26 * time.Hour

func backup(f Facts) []Finding {
	if f.Server == nil {
		return nil
	}
	what := "the server's last backup was made " + f.Server.Backup.UTC().Format(time.RFC3339)
	since := f.Server.Backup
	if since.IsZero() {
		what, since = "this server has no backup", f.Server.Made
	}
	if r := f.Server.Rotation; (r.Phase == tutti.RotationSwitched || r.Phase == tutti.RotationFinished) && r.Since.After(since) {
		return one(what+", before the CA was rotated", "nodes and operators that know the new CA refuse a server that is restored from it", "tutti server backup FILE")
	}
	if f.Now.Sub(since) <= backupAge {
		return nil
	}
	return one(what, "if this disk is lost, all data that was acknowledged since then is lost", "systemctl enable --now tutti-backup.timer, which makes one each day; or: tutti server backup FILE")
}

// rotationStands is how long a rotation may take before doctor reports that it makes no
// progress.
const rotationStands = 7 * 24 * time.Hour

// The function `rotation` finds a rotation of the CA that makes no progress. The function also finds nodes and
// operators that did not take part in a rotation.
func rotation(f Facts) (out []Finding) {
	if f.Server == nil {
		return nil
	}
	r := f.Server.Rotation
	if r.Phase.Rotates() && f.Now.Sub(r.Since) > rotationStands {
		out = append(out, Finding{What: fmt.Sprintf("the rotation of the CA has been %s since %s; nodes and operators that are behind: %d", r.Phase, r.Since.UTC().Format(time.RFC3339), len(r.Behind)),
			Means: "anyone who has the old keys can still act as the server", Mend: "tutti rotate ca --status; then tutti rotate ca --switch, --finish or --abandon"})
	}
	for _, b := range r.Behind {
		if b.Foreign {
			out = append(out, Finding{What: fmt.Sprintf("node %s: %s", b.Node, b.Why), Means: "somebody else can act as the server for this node",
				Mend: fmt.Sprintf("look at the node; tutti node remove %s; then join it again with new keys", b.Node)})
		}
	}
	for _, node := range r.Left {
		out = append(out, Finding{What: fmt.Sprintf("node %s was left behind by the rotation of the CA", node), Means: "the server refuses it",
			Mend: fmt.Sprintf("tutti token create --name %s | ssh %s tutti join --again", node, node)})
	}
	return out
}

// The function `content` reports the damage that a scrub has found. It reports nothing if a later backup has read all
// content.
func content(f Facts) []Finding {
	if f.Server == nil || len(f.Server.Damaged) == 0 || f.Server.Backup.After(f.Server.Scrubbed) {
		return nil
	}
	const most = 3
	what := fmt.Sprintf("the server's disk has lost stored content, found %s: %s", f.Server.Scrubbed.UTC().Format(time.RFC3339), strings.Join(f.Server.Damaged[:min(len(f.Server.Damaged), most)], "; "))
	if more := len(f.Server.Damaged) - most; more > 0 {
		what += fmt.Sprintf("; and %d more", more)
	}
	return one(what, "acknowledged content can no longer be read, and no backup can be made",
		"look at the disk; push lost code again, or: tutti server restore of the last backup; tutti server backup then reads all of it again")
}

// reportsPatience is how long a destination of reports may be away before doctor mentions it.
const reportsPatience = 10 * time.Minute

func reports(f Facts) (out []Finding) {
	if f.Server == nil {
		return nil
	}
	if f.Server.ReportsBad != nil {
		out = one(f.Server.ReportsBad.Error(), "the server cannot start with this file, and sends no reports", "correct the file; tutti server reports check")
	}
	for _, r := range f.Server.Reports {
		if r.Error != "" && f.Now.Sub(r.Since) > reportsPatience {
			since := ""
			if !r.Since.IsZero() { // zero: the server cannot read what it knows of the destination
				since = " since " + r.Since.UTC().Format(time.RFC3339)
			}
			out = append(out, Finding{What: fmt.Sprintf("%s gets no reports%s: %s", r.Name, since, r.Error),
				Means: fmt.Sprintf("%d reports wait, and the server drops them when it removes old reports", r.Waiting), Mend: "tutti server reports check"})
		}
		if r.Parked > 0 {
			out = append(out, Finding{What: fmt.Sprintf("%s has refused %d reports", r.Name, r.Parked), Means: "the server does not send them again by itself",
				Mend: "tutti server reports list; tutti server reports retry " + r.Name})
		}
		if r.Dropped > 0 {
			out = append(out, Finding{What: fmt.Sprintf("%d reports were never sent to %s", r.Dropped, r.Name), Hint: true,
				Means: "the server removed them while the destination was away", Mend: "keep more reports: tutti server --keep-reports, --keep-reports-for"})
		}
	}
	return out
}

func ask(f Facts) (out []Finding) {
	if f.Server != nil && f.Server.Running && f.Server.Asked != nil {
		out = append(out, Finding{What: "the server here does not answer: " + f.Server.Asked.Error(), Means: "operators and nodes wait", Mend: "journalctl -u tutti-server"})
	}
	if f.Operator != nil && f.Operator.Asked != nil && f.Operator.Link.Err == nil {
		out = append(out, Finding{What: "the server refuses " + f.Operator.Name + ": " + f.Operator.Asked.Error(), Means: "no command of this operator works",
			Mend: "on the server, as root: tutti operator create " + f.Operator.Name})
	}
	return out
}

func nodes(f Facts) []Finding {
	if f.Server == nil {
		return nil
	}
	var out []Finding
	for _, n := range f.Server.Nodes {
		if len(n.TooOldFor) > 0 {
			out = append(out, Finding{
				What: fmt.Sprintf("node %s: %s", n.Node, tutti.TooOld(n.Node, n.Version, n.TooOldFor)), Means: "a run that needs this fails there at once",
				Mend: "install this server's release on the node; its Puppet runs go on",
			})
		}
		switch {
		case n.Conflicted != "":
			out = append(out, Finding{What: n.Conflicted, Means: "the server accepts nothing from either machine and starts nothing there", Mend: fmt.Sprintf("tutti node show %s, then tutti node keep %s BOOT", n.Node, n.Node)})
		case n.Trouble != "":
			out = append(out, Finding{What: fmt.Sprintf("node %s says: %s", n.Node, n.Trouble), Means: "it starts no run until this problem is solved", Mend: "on the node: tutti doctor"})
		case n.Unnoted != "":
			out = append(out, Finding{
				What:  fmt.Sprintf("node %s could not note runs that Tutti did not start: %s", n.Node, n.Unnoted),
				Means: "such a run may have changed the node: the node is suspect until it has noted these runs", Mend: "make room on the node's disk; on the node: tutti doctor",
			})
		case n.SeenAt.IsZero():
			out = append(out, Finding{What: fmt.Sprintf("node %s has sent nothing since the server started", n.Node), Means: "its runs are lost", Mend: "on the node: tutti doctor"})
		case f.Now.Sub(n.SeenAt) > silent:
			out = append(out, Finding{What: fmt.Sprintf("node %s was last heard of %s ago", n.Node, f.Now.Sub(n.SeenAt).Round(time.Second)), Means: "its runs are lost", Mend: "on the node: tutti doctor"})
		}
	}
	if old := api.OldGrants(f.Server.Nodes); old != "" {
		out = append(out, Finding{What: old, Means: "the server refuses the next push of the fleet file unless these grants have `dangerous: true`", Mend: "tutti grants suggest"})
	}
	return out
}

func noPuppet(n Node) []Finding {
	if n.Puppet == nil {
		return nil
	}
	return one(n.Puppet.Error(), "every run here fails", "apt-get install puppet-agent (or openvox-agent)")
}

// OfNames returns a finding if Tutti's and Puppet's name for this machine differ, and nil otherwise.
func OfNames(node tutti.NodeName, c Certname) []Finding {
	if c.Name == "" || node == "" || c.Name == string(node) {
		return nil
	}
	f := Finding{
		Check: certnameCheck,
		Hint:  !c.Configured,
		What:  fmt.Sprintf("Puppet's certname is %q, and this machine is node %q", c.Name, string(node)),
		Means: "with mode agent each run here is failed:refused",
		Mend: fmt.Sprintf("join under Puppet's name: tutti leave, then tutti token create --name %s | ssh %s tutti join; without a Puppet Server also: "+
			"puppet config set certname %s --section main", c.Name, c.Name, node),
	}
	if c.Configured {
		f.Means = "each run here is failed:refused"
	}
	return []Finding{f}
}

func module(n Node) []Finding {
	if n.Module == "" {
		return nil
	}
	mend := "start the agent again"
	if n.Unit != "" {
		mend = "systemctl restart " + n.Unit
	}
	return one(n.Module, "the agent and its Puppet module are from different releases, or the module is not Tutti's", mend)
}

func locks(n Node) (out []Finding) {
	for _, l := range n.Locks {
		out = append(out, Finding{
			What:  fmt.Sprintf("%s is the lock of process %d, which is gone", l.Path, l.PID),
			Means: "Puppet takes the lock over at its next run; until then Puppet seems to be running", Mend: "rm " + l.Path,
		})
	}
	return out
}

func runs(n Node) (out []Finding) {
	if len(n.Unended) > 0 {
		out = append(out, Finding{What: "unfinished runs without a process: " + join(n.Unended), Means: "the agent has not ended these runs: it does not run, or cannot write", Mend: "start the agent; it ends them as interrupted"})
	}
	if len(n.Unsent) > 0 {
		out = append(out, Finding{What: "finished runs whose result the server does not have: " + join(n.Unsent), Means: "their jobs wait for the results", Mend: "let the agent reach the server; it sends them by itself"})
	}
	if len(n.Refused) > 0 {
		out = append(out, Finding{What: "finished runs whose result the server did not accept: " + join(n.Refused), Means: "the server counts these runs as failed; only their directories say how they ended", Mend: fmt.Sprintf("tutti local status says why; then run the node again: tutti converge %s", n.Name)})
	}
	return out
}

func join(runs []tutti.RunID) string {
	var out []string
	for _, r := range runs {
		out = append(out, string(r))
	}
	return strings.Join(out, ", ")
}

func slowFacts(n Node) []Finding {
	if len(n.Slow) == 0 {
		return nil
	}
	var costs, ttls []string
	for _, f := range n.Slow {
		costs = append(costs, fmt.Sprintf("%s %.1f s", f.Name, f.Cost.Seconds()))
		ttls = append(ttls, fmt.Sprintf("{ %q : 1 days }", f.Name))
	}
	return []Finding{{
		What:  "facts that take long, in each of the last runs: " + strings.Join(costs, ", "),
		Means: "every collection of facts takes that long, for Tutti and for everyone else",
		Mend:  fmt.Sprintf("if they change seldom, in %s: facts : { ttls : [ %s ] }; if nobody reads them: blocklist instead of ttls", n.FacterConf, strings.Join(ttls, ", ")),
		Hint:  true,
	}}
}
