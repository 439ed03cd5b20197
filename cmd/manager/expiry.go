// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/controllers/hub/expiry"
	"github.com/trainyard/trainyard/controllers/hub/expiry/archive"
)

// archiveOptions say where jobs are kept that the manager deletes after their end. At most one place is set.
type archiveOptions struct {
	dir       string
	url       string
	tokenFile string
}

func (o *archiveOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.dir, "archive-dir", o.dir,
		"Write each TrainJob that is deleted because of its TTL, with its Dispatch, as one line of JSON to files in this "+
			"`directory` first. Empty: do not.")
	fs.StringVar(&o.url, "archive-url", o.url,
		"Send each TrainJob that is deleted because of its TTL, with its Dispatch, by POST as JSON to this HTTPS `URL` "+
			"first. Empty: do not.")
	fs.StringVar(&o.tokenFile, "archive-token-file", o.tokenFile,
		"`File` with the bearer token for --archive-url. It is read for each request. Empty: no token.")
}

func (o *archiveOptions) validate() error {
	var faults *multierror.Error
	if o.dir != "" && o.url != "" {
		faults = multierror.Append(faults, errors.New("--archive-dir and --archive-url are both set: set one of them"))
	}
	if o.tokenFile != "" && o.url == "" {
		faults = multierror.Append(faults, errors.New("--archive-token-file needs --archive-url"))
	}
	if info, err := os.Stat(o.dir); o.dir != "" && (err != nil || !info.IsDir()) {
		faults = multierror.Append(faults, fmt.Errorf("--archive-dir is %q: must be an existing directory", o.dir))
	}
	if o.url != "" {
		if _, err := archive.NewEndpoint(o.url, o.tokenFile, nil); err != nil {
			faults = multierror.Append(faults, fmt.Errorf("--archive-url is %q: %w", withoutPassword(o.url), err))
		}
	}
	return faults.ErrorOrNil()
}

func withoutPassword(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "not readable"
	}
	return parsed.Redacted()
}

// newArchive returns the archive, nil if there is none. writer tells the replicas apart.
func (o *archiveOptions) newArchive(writer string) (expiry.Archive, error) {
	switch {
	case o.dir != "":
		dir, err := archive.NewDir(o.dir, writer)
		if err != nil {
			return nil, fmt.Errorf("open --archive-dir: %w", err)
		}
		return dir, nil
	case o.url != "":
		endpoint, err := archive.NewEndpoint(o.url, o.tokenFile, nil)
		if err != nil {
			return nil, fmt.Errorf("set up --archive-url: %w", err)
		}
		return endpoint, nil
	}
	return nil, nil
}

// addExpiry adds the controller that deletes jobs after their end.
func (w *wiring) addExpiry(host string) error {
	kept, err := w.options.archive.newArchive(host)
	if err != nil {
		return err
	}
	return expiry.NewReconciler(expiry.Options{
		Hub: w.mgr.GetClient(), HubReader: w.mgr.GetAPIReader(), ManagedBy: w.options.managedBy, Policy: w.policies.For,
		Archive: kept, Recorder: w.mgr.GetEventRecorder(recorderName), Clock: clock.RealClock{},
	}).Add(w.mgr)
}
