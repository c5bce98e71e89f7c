# The mirror, the schedules and what watches over them.

mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project             = "mailyard-test"
  oauth_client_id     = "1-a.apps.googleusercontent.com"
  oauth_client_secret = "a secret"
  keyset              = "AAAA"
  archive             = "tests/testdata/archive.zip"

  # terraform test hands optional ephemeral variables to the apply that it has not handed to the plan.
  connect_key   = ""
  alert_webhook = ""
}

run "mirror" {
  assert {
    condition = (
      google_firestore_database.mirror.type == "FIRESTORE_NATIVE"
      && google_firestore_database.mirror.point_in_time_recovery_enablement == "POINT_IN_TIME_RECOVERY_ENABLED"
      && google_firestore_database.mirror.delete_protection_state == "DELETE_PROTECTION_ENABLED"
      && google_firestore_database.mirror.deletion_policy == "ABANDON"
      && google_firestore_database.mirror.location_id == "us-central1"
    )
    error_message = "The mirror can be lost."
  }

  assert {
    condition = (
      alltrue([for f in google_firestore_field.expiring :
        f.field == "expireAt" && length(f.ttl_config) == 1 && length(f.index_config) == 1
      ])
      && length(setsubtract(["messages", "failures", "connects", "removals"], keys(google_firestore_field.expiring))) == 0
    )
    error_message = "What expires does not go by itself, or is indexed by when it does."
  }

  assert {
    condition = (
      contains(keys(google_firestore_field.unindexed), "messages.guards")
      && alltrue([for f in google_firestore_field.unindexed :
        length(f.index_config) == 1 && length(coalesce(f.index_config[0].indexes, [])) == 0
      ])
    )
    error_message = "Guards, or another field that nobody compares by, are indexed."
  }

  assert {
    condition = (
      [for f in google_firestore_index.query["messages unread by date"].fields : "${f.field_path} ${f.order}"]
      == ["unread ASCENDING", "deleted ASCENDING", "trashed ASCENDING", "date DESCENDING"]
    )
    error_message = "An inbox app cannot list what is unread by date."
  }

  assert {
    condition = (
      google_firebaserules_ruleset.mirror.source[0].files[0].content == file("firestore.rules")
      && google_firebaserules_release.mirror.name == "cloud.firestore"
    )
    error_message = "The mirror has other rules than those that are tested."
  }
}

run "schedules" {
  variables {
    digest_sender = "digests@example.com"
    digest_zone   = "Europe/Berlin"
  }

  assert {
    condition = { for key, j in google_cloud_scheduler_job.schedule : key => "${j.schedule} ${j.time_zone}" } == {
      tick = "* * * * * Etc/UTC", renew = "17 * * * * Etc/UTC", digest = "0 6 * * * Europe/Berlin"
    }
    error_message = "Tick is not every minute, Renew not hourly, or Digest not daily in its zone."
  }

  assert {
    condition = alltrue([for key, j in google_cloud_scheduler_job.schedule :
      j.http_target[0].uri == google_cloudfunctions2_function.function[key].service_config[0].uri
      && j.http_target[0].http_method == "POST"
      && j.http_target[0].oidc_token[0].service_account_email == google_service_account.scheduler.email
      && j.http_target[0].oidc_token[0].audience == google_cloudfunctions2_function.function[key].service_config[0].uri
      && j.retry_config[0].retry_count > 0
      && !j.paused
    ])
    error_message = "A schedule does not call its function, as the scheduler's account, with a retry."
  }
}

run "nobody_sends_digests" {
  assert {
    condition = (
      [for key, j in google_cloud_scheduler_job.schedule : key if j.paused] == ["digest"]
      && !contains(keys(google_monitoring_alert_policy.alert), "digest-progress")
    )
    error_message = "Without a sender the digests' schedule runs, or is missed."
  }
}

run "watching" {
  variables {
    digest_sender         = "digests@example.com"
    notification_channels = ["projects/mailyard-test/notificationChannels/1"]
    playbook_url          = "https://git.example.com/mailyard/README.md"
  }

  assert {
    condition = (
      toset(concat(keys(google_monitoring_alert_policy.alert), keys(google_monitoring_alert_policy.log)))
      == toset(["dead-letter", "backlog", "push-errors", "ingest", "tick-progress", "renew-progress", "digest-progress", "watch"])
    )
    error_message = "There are other alerts than the design's."
  }

  assert {
    condition = alltrue([for p in concat(values(google_monitoring_alert_policy.alert), values(google_monitoring_alert_policy.log)) :
      can(regex("\\]\\(https://git\\.example\\.com/mailyard/README\\.md#[a-z-]+\\)", p.documentation[0].content))
      && toset(p.notification_channels) == toset(["projects/mailyard-test/notificationChannels/1"])
    ])
    error_message = "An alert links no section of the playbook, or tells nobody."
  }

  # The bounds of Cloud Monitoring: a filter has at most 2,048 characters, a window at most 25 hours.
  assert {
    condition = alltrue(flatten([for p in google_monitoring_alert_policy.alert :
      [for c in p.conditions :
        length(c.condition_threshold[0].filter) <= 2048
        && tonumber(trimsuffix(c.condition_threshold[0].aggregations[0].alignment_period, "s")) <= 90000
      ]
    ]))
    error_message = "An alert's condition is more than Cloud Monitoring takes."
  }

  assert {
    condition = alltrue([for t in google_pubsub_topic.dead_letter :
      strcontains(join(" ", [for c in google_monitoring_alert_policy.alert["dead-letter"].conditions : c.condition_threshold[0].filter]), t.name)
    ])
    error_message = "A dead letter of some topic alerts nobody."
  }

  assert {
    condition = (
      google_logging_metric.line["deliveries"].label_extractors
      == tomap({ consumer = "EXTRACT(labels.consumer)", lane = "EXTRACT(labels.lane)", outcome = "EXTRACT(labels.outcome)", code = "EXTRACT(labels.code)" })
    )
    error_message = "Deliveries are not counted by function, lane, outcome and code."
  }

  # A name and five charts for each of the nine routes; then three rows with 4, 2 and 4.
  assert {
    condition     = length(jsondecode(google_monitoring_dashboard.mailyard.dashboard_json).mosaicLayout.tiles) == 9 * 6 + 3 + 10
    error_message = "The dashboard has not a row for each route, and three more."
  }

  assert {
    condition = alltrue([for t in jsondecode(google_monitoring_dashboard.mailyard.dashboard_json).mosaicLayout.tiles :
      try(t.xPos, 0) + t.width <= 48
    ])
    error_message = "The dashboard is wider than Cloud Monitoring takes."
  }

  assert {
    condition     = !can(regex(":(0|\\[\\])[,}]", google_monitoring_dashboard.mailyard.dashboard_json))
    error_message = "The dashboard has a zero or an empty list, which Google leaves out of its answer: every apply would change it."
  }
}

run "secrets_and_services" {
  assert {
    condition = (
      toset(keys(google_secret_manager_secret_version.secret)) == toset(["oauth_client_secret", "connect_key", "keyset"])
      && alltrue([for v in google_secret_manager_secret_version.secret : v.secret_data == null && v.secret_data_wo == null])
    )
    error_message = "A secret is in the state, or there is one that nobody gave."
  }

  assert {
    condition = (
      google_kms_crypto_key.keyset.deletion_policy == "ABANDON"
      && google_secret_manager_secret.secret["keyset"].deletion_policy == "ABANDON"
      && google_secret_manager_secret_version.secret["keyset"].deletion_policy == "ABANDON"
    )
    error_message = "terraform destroy takes the keyset with it, and every credential with that."
  }

  assert {
    condition     = alltrue([for s in google_project_service.api : !s.disable_on_destroy])
    error_message = "terraform destroy turns off what others in the project may use."
  }
}

# What was given with the first apply is not asked for again, nor written again.
run "keyset_is_given_once" {
  variables {
    keyset = null
  }

  assert {
    condition     = google_secret_manager_secret_version.secret["keyset"].secret_data_wo_version == 1 && terraform_data.keyset_given.output
    error_message = "The keyset has to be given again."
  }
}
