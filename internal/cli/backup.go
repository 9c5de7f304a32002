package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// ServerBackup names the server to back up, and the file for the backup.
type ServerBackup struct {
	Dir, Socket, File string
	Out               io.Writer
	// Into is a directory. If Into is set, File is empty, and the time becomes the name of the backup. After a new
	// backup, old backups are removed, so that at most Keep backups stay.
	Into string
	Keep int
}

// BackupMade describes a backup.
type BackupMade struct {
	File    string       `json:"file"`
	MadeAt  time.Time    `json:"made_at,omitzero"`
	Seq     uint64       `json:"seq"` // sequence of the last event in the backup
	Link    tutti.Digest `json:"link"`
	Entries int          `json:"entries"`
	Blobs   int          `json:"blobs"`
	Removed []string     `json:"removed,omitempty"` // older backups
}

// Backups makes and restores backups of a server.
type Backups interface {
	Backup(ctx context.Context, o ServerBackup) (BackupMade, error)
	Restore(ctx context.Context, file, dir string) (BackupMade, error)
	// NewEpoch makes the next start of a server begin a new epoch. The number of the new epoch will be
	// above the given number.
	NewEpoch(dir string, above uint64) error
}

func newServerBackupCommand(o *options) *cobra.Command {
	var in ServerBackup
	cmd := &cobra.Command{
		Use:   "backup [FILE]",
		Short: "Copy the server's state at one event into a file (-: standard output)",
		Long: `Copies configuration, identity, log and content. The server may run at
the same time. Then the command connects to its local socket.

The backup contains the key of the fleet's CA. Anyone who has the backup can act as
the fleet's server. Keep it encrypted.

With --into DIR the command names the file by the time and removes older backups. The
timer tutti-backup makes such a backup each day:
systemctl enable --now tutti-backup.timer`,
		Example: `  tutti server backup tutti.backup
  tutti server backup --into /var/backups/tutti --keep 7`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 == (in.Into != "") {
				return tutti.Errorf(tutti.CodeInvalid, "give the name of a file, or a directory with --into")
			}
			if in.Keep < 1 {
				return tutti.Errorf(tutti.CodeInvalid, "--keep %d must be at least 1", in.Keep)
			}
			if len(args) == 1 {
				in.File = args[0]
			}
			in.Socket, in.Out = o.conn.Socket, rawOf(cmd.OutOrStdout())
			made, err := o.deps.Backups.Backup(cmd.Context(), in)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("%s: up to event %d (%d events, %d blobs). It holds the CA's key: keep it encrypted.\n", made.File, made.Seq, made.Entries, made.Blobs)
			for _, file := range made.Removed {
				text += "Removed " + file + "\n"
			}
			if in.File == "-" {
				_, err := io.WriteString(cmd.ErrOrStderr(), text)
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), made)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Dir, "dir", DefaultServerDir, "data directory")
	f.StringVar(&in.Into, "into", "", "directory for the backups, created if it does not exist")
	f.IntVar(&in.Keep, "keep", 7, "with --into: how many backups to keep there")
	return cmd
}

func newServerNewEpochCommand(o *options) *cobra.Command {
	dir := DefaultServerDir
	var above uint64
	cmd := &cobra.Command{
		Use:   "new-epoch",
		Short: "Declare this log the right one, after its files were put back",
		Long: `Nodes and operators refuse a server whose log has gone back. Nodes and
operators also refuse one of two servers that were made from the same log. This command
marks the right server. The server's next start begins a new epoch, and nodes and
operators accept the server. Everything that is not in this log is lost. A node that has
run since then runs again.

Stop the server first. "tutti server restore" begins a new epoch by itself.

The number of an epoch is a time. If a clock was ahead, the error message says which
number to give with --above.`,
		Example: "  tutti server new-epoch --dir /var/lib/tutti/server",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.deps.Backups.NewEpoch(dir, above); err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf("The next start of the server in %s begins another epoch. Never let another server of this fleet run beside it.\n", dir), map[string]any{"dir": dir})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultServerDir, "data directory")
	cmd.Flags().Uint64Var(&above, "above", 0, "begin an epoch with a number above this one, which the error message names")
	return cmd
}

func newServerRestoreCommand(o *options) *cobra.Command {
	dir := DefaultServerDir
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a server's data directory from a backup",
		Long: `Verifies the whole backup, then makes the directory. The directory must
be empty or not exist. Nodes and operators find the server under its old name and come
back by themselves. Everything that the server acknowledged after the backup is lost.`,
		Example: "  tutti server restore tutti.backup",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			made, err := o.deps.Backups.Restore(cmd.Context(), args[0], dir)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), made)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), `Restored %s as of %s: up to event %d (%d events, %d blobs).
Everything that was acknowledged later is lost. The command tutti audit verify shows each operator how much was lost.
Never let the old server run beside this one. Start this one with: tutti server --dir %s
`, dir, made.MadeAt.Local().Format(time.DateTime), made.Seq, made.Entries, made.Blobs, dir)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultServerDir, "data directory to make")
	return cmd
}
