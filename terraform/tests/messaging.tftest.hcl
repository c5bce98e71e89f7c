# Every lane, and every other route, has its topics and subscriptions as the catalogue says.

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

run "messaging" {
  # With the optional lane, so that it is each lane of the catalogue.
  variables {
    optional_lanes = ["message-labeled"]
  }

  assert {
    condition = (
      toset(keys(google_pubsub_topic.work)) == toset(concat([for l in jsondecode(file("../shared/lane/catalogue.json")).lanes :
        l.key], ["ingest", "resync", "digest-send"
      ]))
    )
    error_message = "There are not exactly the catalogue's lanes and the three other routes."
  }

  assert {
    condition = alltrue([for l in jsondecode(file("../shared/lane/catalogue.json")).lanes :
      google_pubsub_topic.work[l.key].name == "gmail-${l.key}"
    ])
    error_message = "A lane's topic is not gmail-<lane>."
  }

  assert {
    condition = alltrue([for l in jsondecode(file("../shared/lane/catalogue.json")).lanes :
      google_pubsub_subscription.work[l.key].name == "gmail-${l.key}-apply"
    ])
    error_message = "A lane's subscription is not gmail-<lane>-apply."
  }

  assert {
    condition = (
      [for key in ["ingest", "resync", "digest-send"] :
        "${google_pubsub_topic.work[key].name} ${google_pubsub_subscription.work[key].name}"
      ]
      == ["gmail-notifications gmail-notifications-ingest", "mailbox-resync mailbox-resync-work", "digest-send digest-send-work"]
    )
    error_message = "A route beside the lanes has other names than the design's."
  }

  assert {
    condition = alltrue([for key, s in google_pubsub_subscription.work :
      s.topic == google_pubsub_topic.work[key].id
      && s.dead_letter_policy[0].dead_letter_topic == google_pubsub_topic.dead_letter[key].id
      && google_pubsub_topic.dead_letter[key].name == "${google_pubsub_topic.work[key].name}-dead-letter"
    ])
    error_message = "A subscription is not wired to its own topic and its own dead-letter topic."
  }

  assert {
    condition = alltrue([for l in jsondecode(file("../shared/lane/catalogue.json")).lanes :
      google_pubsub_subscription.work[l.key].retry_policy[0].minimum_backoff == "${l.delivery.minBackoffSeconds}s"
      && google_pubsub_subscription.work[l.key].retry_policy[0].maximum_backoff == "${l.delivery.maxBackoffSeconds}s"
      && google_pubsub_subscription.work[l.key].dead_letter_policy[0].max_delivery_attempts == l.delivery.maxDeliveryAttempts
      && google_pubsub_subscription.work[l.key].ack_deadline_seconds == l.delivery.ackDeadlineSeconds
    ])
    error_message = "A lane's retry policy, attempts or ack deadline is not the catalogue's."
  }

  assert {
    condition = alltrue(flatten([for subscriptions in [google_pubsub_subscription.work, google_pubsub_subscription.inspect, google_pubsub_subscription.monitor] :
      [for s in subscriptions : s.expiration_policy[0].ttl == ""]
    ]))
    error_message = "A subscription expires when it is idle."
  }

  assert {
    condition = alltrue([for key, s in google_pubsub_subscription.inspect :
      s.name == "${google_pubsub_topic.dead_letter[key].name}-inspect" && s.topic == google_pubsub_topic.dead_letter[key].id
      && length(s.push_config) == 0 && s.message_retention_duration == "2678400s"
    ])
    error_message = "A dead-letter topic has no -inspect that is pulled and keeps letters for 31 days."
  }

  assert {
    condition = alltrue([for key, s in google_pubsub_subscription.monitor :
      s.name == "${google_pubsub_topic.dead_letter[key].name}-monitor" && s.topic == google_pubsub_topic.dead_letter[key].id
      && s.push_config[0].push_endpoint == google_cloudfunctions2_function.function["dead-letter"].service_config[0].uri
      && length(s.dead_letter_policy) == 0
    ])
    error_message = "A dead-letter topic has no -monitor that pushes to DeadLetter."
  }

  assert {
    condition = (
      toset(keys(google_pubsub_subscription.inspect)) == toset(keys(google_pubsub_topic.work))
      && toset(keys(google_pubsub_subscription.monitor)) == toset(keys(google_pubsub_topic.work))
    )

    error_message = "A route lacks one of the two subscriptions of its dead letters."
  }

  assert {
    condition = alltrue([for key, s in google_pubsub_subscription.work :
      s.push_config[0].push_endpoint == google_cloudfunctions2_function.function[key].service_config[0].uri
      && s.push_config[0].oidc_token[0].audience == google_cloudfunctions2_function.function[key].service_config[0].uri
      && s.push_config[0].oidc_token[0].service_account_email == google_service_account.push.email
    ])
    error_message = "A subscription does not push to its own function with the push account's token for that function."
  }

  assert {
    condition     = google_pubsub_topic.mailbox_changes.name == "mailbox-changes"
    error_message = "The app's topic is not mailbox-changes."
  }
}

run "overrides" {
  variables {
    delivery = {
      message-read = { instances = 20, maxBackoffSeconds = 600, maxDeliveryAttempts = 5 }
      ingest       = { cpu = 2, ackDeadlineSeconds = 120 }
    }
  }

  assert {
    condition = (
      google_cloudfunctions2_function.function["message-read"].service_config[0].max_instance_count == 20
      && google_pubsub_subscription.work["message-read"].retry_policy[0].maximum_backoff == "600s"
      && google_pubsub_subscription.work["message-read"].retry_policy[0].minimum_backoff == "30s"
      && google_pubsub_subscription.work["message-read"].dead_letter_policy[0].max_delivery_attempts == 5
      && google_cloudfunctions2_function.function["ingest"].service_config[0].available_cpu == "2"
      && google_pubsub_subscription.work["ingest"].ack_deadline_seconds == 120
    )
    error_message = "An override did not arrive, or took other values with it."
  }

  assert {
    condition     = google_cloudfunctions2_function.function["message-unread"].service_config[0].max_instance_count == 5
    error_message = "An override changed another lane."
  }
}
