// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// A baseline is etcd's data after the first start of an API server with some CRDs: the system's roles and namespaces,
// and the CRDs. Clusters with these CRDs begin with a copy of it. More than half of the CPU time of a start went into
// writing these objects. The user's cache directory has the baselines: in the repository, go test would take them for
// inputs of tests.

// baselineFolder is the directory of the baselines in the user's cache directory.
const baselineFolder = "trainyard/baselines"

// baselineLife is how long a baseline is kept, at least.
const baselineLife = 30 * 24 * time.Hour

// baselineVersion changes with what makeBaseline does.
const baselineVersion = 2

// ownKeys are the keys of etcd's that a baseline lacks, because they differ between clusters. The API server creates
// both objects when it starts: the namespace whose UID identifies the cluster, and the cluster's certificate authority.
var ownKeys = []string{
	"/registry/namespaces/kube-system",
	"/registry/configmaps/kube-system/extension-apiserver-authentication",
}

// hasFirstCRDs is true if the cluster has begun with a baseline.
func (p *processes) hasFirstCRDs() bool { return !p.options.blank }

// copyBaseline makes the baseline the data of the cluster's etcd. If there is no such baseline yet, it makes one. Where
// it cannot be written, etcd begins without data. So it does with arguments that may change what the data has to be.
func (p *processes) copyBaseline(ctx context.Context) error {
	if p.options.blank = p.options.blank || len(p.options.APIServerArgs) > 0; p.options.blank {
		return nil
	}
	path, err := p.baselinePath()
	if err != nil {
		return fmt.Errorf("name the baseline: %w", err)
	}
	err = makeBaseline(ctx, p.options, path)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		p.options.blank = true
		return nil
	}
	if err == nil {
		err = p.copyData(path)
	}
	if err != nil {
		return fmt.Errorf("begin with the baseline %s, which can be deleted: %w", path, err)
	}
	return nil
}

// baselinePath names a baseline after everything that it depends on.
func (p *processes) baselinePath() (string, error) {
	hash := sha256.New()
	if err := p.programs.identify(hash); err != nil {
		return "", err
	}
	if err := json.NewEncoder(hash).Encode(p.options.firstCRDs); err != nil {
		return "", err
	}
	fmt.Fprint(hash, baselineVersion, ownKeys, etcdArgs(), apiServerArgs(Options{}, 0))
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir() // There is no home.
	}
	return filepath.Join(cache, baselineFolder, hex.EncodeToString(hash.Sum(nil)[:8])), nil
}

// makeBaseline makes the baseline at a path, unless it is there, or another process makes it meanwhile. A baseline with
// CRDs begins with the one without.
func makeBaseline(ctx context.Context, o Options, path string) (err error) {
	if exists(path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	lock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if exists(path) {
		return nil
	}
	if err := removeOld(filepath.Dir(path)); err != nil {
		return err
	}
	c, err := Start(ctx, Options{Name: "baseline", BinDir: o.BinDir, Release: o.Release, blank: len(o.firstCRDs) == 0})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.applyCRDs(ctx, o.firstCRDs); err != nil {
		return err
	}
	if err := c.KillAPIServer(); err != nil {
		return err
	}
	for _, key := range ownKeys {
		if err := c.deleteKey(ctx, key); err != nil {
			return err
		}
	}
	if err := c.Process("etcd").Stop(); err != nil {
		return err
	}
	partial := path + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.CopyFS(partial, os.DirFS(filepath.Join(c.Dir, etcdDir)))); err != nil {
		return err
	}
	syscall.Sync() // etcd does not sync here, and a baseline is to outlive a crash of the machine.
	return os.Rename(partial, path)
}

// removeOld removes what has been in a directory for baselineLife. Who needs such a baseline makes it again.
func removeOld(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || time.Since(info.ModTime()) < baselineLife {
			continue // Somebody else may have removed it.
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
