// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bucket is a logarchive.Store in a bucket that speaks the protocol of S3.
//
// The credentials are those of the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a file that
// AWS_SHARED_CREDENTIALS_FILE names, a web identity (AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE), or the role of the
// machine. They need to put, get and list objects, and nothing else.
package bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/trainyard/trainyard/logarchive"
)

const (
	// timeout is how long one request may take.
	timeout = 30 * time.Second
	// retries is how often a request is sent at most. The caller tries again later.
	retries = 3
	// defaultRegion is what servers other than Amazon's have, if AWS_REGION does not say another one.
	defaultRegion = "us-east-1"
)

// Bucket is a Store. All methods may be called concurrently.
type Bucket struct {
	client *minio.Client
	name   string
	// prefix is empty, or ends with a slash.
	prefix string
}

// New returns a bucket at https://SERVER/BUCKET, or a part of it at https://SERVER/BUCKET/PREFIX. transport verifies the
// server; nil: by the system's CAs. New sends nothing.
func New(address string, transport http.RoundTripper) (*Bucket, error) {
	server, name, prefix, err := parse(address)
	if err != nil {
		return nil, err
	}
	client, err := minio.New(server, &minio.Options{
		Secure: true, Transport: transport, MaxRetries: retries, Region: cmp.Or(os.Getenv("AWS_REGION"), regionOf(server)),
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("make client for the bucket: %w", err)
	}
	return &Bucket{client: client, name: name, prefix: prefix}, nil
}

// regionOf returns the region of a server. Amazon's servers have it in their names, and the client finds it there.
func regionOf(server string) string {
	if strings.HasSuffix(server, ".amazonaws.com") {
		return ""
	}
	return defaultRegion
}

func parse(address string) (server, name, prefix string, err error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return "", "", "", errors.New("must be a URL") // The error of Parse would quote a password.
	}
	if parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return "", "", "", errors.New("must be a URL such as https://s3.example.com/bucket/prefix, without user, password and query")
	}
	name, prefix, _ = strings.Cut(strings.Trim(parsed.Path, "/"), "/")
	if name == "" {
		return "", "", "", errors.New("must name a bucket, as in https://s3.example.com/bucket")
	}
	if prefix != "" {
		prefix += "/"
	}
	return parsed.Host, name, prefix, nil
}

// Put implements logarchive.Store.
func (b *Bucket) Put(ctx context.Context, key string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	options := minio.PutObjectOptions{ContentType: "text/plain; charset=utf-8", DisableMultipart: true}
	if strings.HasSuffix(key, ".json") {
		options.ContentType = "application/json"
	}
	_, err := b.client.PutObject(ctx, b.name, b.prefix+key, bytes.NewReader(data), int64(len(data)), options)
	return err
}

// Get implements logarchive.Store.
func (b *Bucket) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	object, err := b.client.GetObject(ctx, b.name, b.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = object.Close() }()
	data, err := logarchive.ReadAll(object, limit)
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, logarchive.ErrNotFound
	}
	return data, err
}

// List implements logarchive.Store.
func (b *Bucket) List(ctx context.Context, key string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	below := b.prefix + key + "/"
	for object := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: below}) {
		if object.Err != nil {
			return nil, object.Err
		}
		if name := strings.TrimSuffix(strings.TrimPrefix(object.Key, below), "/"); name != "" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
