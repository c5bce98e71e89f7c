# Each function is what the design says, and may what it needs.

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

run "functions" {
  variables {
    alert_webhook   = "https://discord.com/api/webhooks/1/a"
    secret_versions = { alert_webhook = 1 }
    console_members = ["group:ops@example.com"]
    delegation      = true
  }

  assert {
    condition = alltrue([for l in jsondecode(file("../shared/lane/catalogue.json")).lanes :
      google_cloudfunctions2_function.function[l.key].build_config[0].entry_point == l.entryPoint
      && google_cloudfunctions2_function.function[l.key].service_config[0].max_instance_count == l.delivery.instances
      && google_cloudfunctions2_function.function[l.key].service_config[0].max_instance_request_concurrency == l.delivery.concurrency
      && google_cloudfunctions2_function.function[l.key].service_config[0].timeout_seconds == l.delivery.ackDeadlineSeconds
      if !try(l.optional, false)
    ])
    error_message = "A lane's function has another entry point, or other instances, concurrency or time, than the catalogue says."
  }

  assert {
    condition = { for key, f in google_cloudfunctions2_function.function : key => f.build_config[0].entry_point if !startswith(key, "message-") } == {
      ingest = "Ingest", resync = "Resync", digest-send = "DigestSend", dead-letter = "DeadLetter", tick = "Tick", renew = "Renew"
      digest = "Digest", connect = "Connect", unsubscribe = "Unsubscribe", console = "Console"
    }
    error_message = "The functions beside the lanes are not the design's."
  }

  # What is compared below can be told apart.
  assert {
    condition = (
      length(distinct([for f in google_cloudfunctions2_function.function : f.service_config[0].uri])) == length(google_cloudfunctions2_function.function)
      && length(distinct([for a in google_service_account.function : a.email])) == length(google_cloudfunctions2_function.function)
      && length(distinct([for t in concat(values(google_pubsub_topic.work), values(google_pubsub_topic.dead_letter)) : t.id])) == 18
    )
    error_message = "The mocked URLs, accounts or topics are the same, so the tests say nothing."
  }

  assert {
    condition     = alltrue([for f in google_cloudfunctions2_function.function : f.build_config[0].runtime == "go126"])
    error_message = "A function is built by another Go than 1.26."
  }

  assert {
    condition = alltrue([for f in google_cloudfunctions2_function.function :
      f.service_config[0].max_instance_request_concurrency == 1 || tonumber(f.service_config[0].available_cpu) >= 1
    ])
    error_message = "A function has less than one CPU for more than one request at a time."
  }

  assert {
    condition = alltrue([for f in google_cloudfunctions2_function.function :
      f.service_config[0].environment_variables["MAILYARD_PUSH_AUTH"] == "iam"
      && f.service_config[0].environment_variables["MAILYARD_PUSH_SERVICE_ACCOUNT"] == google_service_account.push.email
    ])
    error_message = "A function does not leave the push's token to Cloud Run, or knows another push account."
  }

  assert {
    condition     = google_storage_bucket_object.source.name == "functions-${substr(filesha256("tests/testdata/archive.zip"), 0, 16)}.zip"
    error_message = "The archive's name does not come from its content."
  }

  # Who may invoke

  assert {
    condition = (
      toset([for i in google_cloud_run_v2_service_iam_member.invoker :
        i.name
        if contains(["allUsers", "allAuthenticatedUsers"], i.member)
      ])
      == toset(["connect", "unsubscribe"])
    )
    error_message = "Others than Connect and Unsubscribe are public."
  }

  assert {
    condition = (
      toset([for key, f in google_cloudfunctions2_function.function : key if f.service_config[0].ingress_settings == "ALLOW_ALL"])
      == toset(["connect", "unsubscribe", "console"])
    )
    error_message = "Others than what is for people can be reached from outside."
  }

  assert {
    condition = alltrue([for key in concat(keys(google_pubsub_subscription.work), ["dead-letter"]) :
      [for i in google_cloud_run_v2_service_iam_member.invoker : "${i.role} ${i.member}" if i.name == key]
      == ["roles/run.invoker serviceAccount:${google_service_account.push.email}"]
    ])
    error_message = "A function that is pushed to can be invoked by others than the push account."
  }

  assert {
    condition = (
      toset([for i in google_cloud_run_v2_service_iam_member.invoker :
        i.name
        if i.member == "serviceAccount:${google_service_account.push.email}"
      ])
      == toset(concat(keys(google_pubsub_subscription.work), ["dead-letter"]))
    )
    error_message = "The push account may invoke what it does not push to."
  }

  assert {
    condition = (
      toset([for i in google_cloud_run_v2_service_iam_member.invoker :
        i.name
        if i.member == "serviceAccount:${google_service_account.scheduler.email}"
      ])
      == toset(["tick", "renew", "digest"])
    )
    error_message = "The scheduler may invoke others than Tick, Renew and Digest."
  }

  assert {
    condition     = [for i in google_cloud_run_v2_service_iam_member.invoker : i.member if i.name == "console"] == ["group:ops@example.com"]
    error_message = "Others than the operators may open the console."
  }

  # Accounts and their roles

  assert {
    condition = (
      alltrue([for key, f in google_cloudfunctions2_function.function :
        f.service_config[0].service_account_email == google_service_account.function[key].email
      ])
      && length(distinct([for a in google_service_account.function : a.account_id]))
      == length(google_cloudfunctions2_function.function)
    )
    error_message = "Two functions share a service account."
  }

  assert {
    condition     = alltrue([for a in google_service_account.function : can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", a.account_id))])
    error_message = "A service account has an id that Google refuses."
  }

  assert {
    condition = alltrue([for m in google_project_iam_member.mirror :
      m.role == "roles/datastore.user" && strcontains(m.condition[0].expression, "databases/(default)")
    ])
    error_message = "A function may more in the project than to use the mirror."
  }

  assert {
    condition = (
      toset(keys(google_kms_crypto_key_iam_member.unwrap))
      == toset(["ingest", "resync", "digest-send", "tick", "renew", "connect", "message-added"])
    )
    error_message = "Others than the functions that call Gmail may unwrap the keyset."
  }

  assert {
    condition = (
      {
        for key, f in google_cloudfunctions2_function.function : key => toset([for s in f.service_config[0].secret_environment_variables : s.key])
        if length(f.service_config[0].secret_environment_variables) > 0
      }
      == {
        message-added = toset(["MAILYARD_OAUTH_CLIENT_SECRET", "MAILYARD_KEYSET"])
        ingest        = toset(["MAILYARD_OAUTH_CLIENT_SECRET", "MAILYARD_KEYSET"])
        resync        = toset(["MAILYARD_OAUTH_CLIENT_SECRET", "MAILYARD_KEYSET"])
        renew         = toset(["MAILYARD_OAUTH_CLIENT_SECRET", "MAILYARD_KEYSET", "MAILYARD_ALERT_WEBHOOK"])
        tick          = toset(["MAILYARD_OAUTH_CLIENT_SECRET", "MAILYARD_KEYSET", "MAILYARD_ALERT_WEBHOOK"])
        digest-send   = toset(["MAILYARD_OAUTH_CLIENT_SECRET", "MAILYARD_KEYSET", "MAILYARD_ALERT_WEBHOOK", "MAILYARD_CONNECT_KEY"])
        connect       = toset(["MAILYARD_OAUTH_CLIENT_SECRET", "MAILYARD_KEYSET", "MAILYARD_CONNECT_KEY"])
        unsubscribe   = toset(["MAILYARD_CONNECT_KEY"])
        dead-letter   = toset(["MAILYARD_ALERT_WEBHOOK"])
      }
    )
    error_message = "A function has a secret that it does not need, or lacks one."
  }

  assert {
    condition = (
      toset([for m in google_secret_manager_secret_iam_member.function : m.member]) == toset([for key, f in google_cloudfunctions2_function.function :
        "serviceAccount:${google_service_account.function[key].email}"
        if length(f.service_config[0].secret_environment_variables) > 0
      ])
    )
    error_message = "Who may read secrets is not who has them."
  }

  assert {
    condition = (
      {
        for key in ["dead-letter", "unsubscribe", "renew", "connect", "digest", "ingest"] :
        key => toset([for k, m in google_pubsub_topic_iam_member.publish : split(" ", k)[1] if split(" ", k)[0] == key])
      }
      == {
        dead-letter = toset([])
        unsubscribe = toset([])
        renew       = toset(["gmail-notifications"])
        connect     = toset(["mailbox-resync"])
        digest      = toset(["digest-send"])
        ingest = toset(concat(
          ["mailbox-resync", "gmail-notifications-dead-letter"],
          [for l in jsondecode(file("../shared/lane/catalogue.json")).lanes : "gmail-${l.key}" if !try(l.optional, false)],
        ))
      }
    )
    error_message = "A function may publish elsewhere than it does, or may not where it does."
  }

  assert {
    condition = alltrue([for k, m in google_pubsub_topic_iam_member.publish :
      m.member == "serviceAccount:${google_service_account.function[split(" ", k)[0]].email}"
    ])
    error_message = "A right to publish is another function's."
  }

  assert {
    condition = (
      google_pubsub_topic_iam_member.gmail.topic == google_pubsub_topic.work["ingest"].id
      && google_pubsub_topic_iam_member.gmail.member == "serviceAccount:gmail-api-push@system.gserviceaccount.com"
      && google_pubsub_topic_iam_member.gmail.role == "roles/pubsub.publisher"
    )
    error_message = "Gmail may not publish on gmail-notifications."
  }

  assert {
    condition = (
      google_cloudfunctions2_function.function["connect"].service_config[0].environment_variables["MAILYARD_PUBLIC_URL"]
      == "https://us-central1-mailyard-test.cloudfunctions.net/connect"
      && output.oauth_redirect_uri == "https://us-central1-mailyard-test.cloudfunctions.net/connect/Connect"
    )
    error_message = "Connect sends people to another URL than its own."
  }
}

# Named as the case of that name in cases.json.
run "dead_letter_rights_missing" {
  assert {
    condition = alltrue([for key, s in google_pubsub_subscription.work :
      google_pubsub_topic_iam_member.forward_to[key].topic == google_pubsub_topic.dead_letter[key].id
      && google_pubsub_topic_iam_member.forward_to[key].role == "roles/pubsub.publisher"
      && google_pubsub_topic_iam_member.forward_to[key].member == "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com"
    ])
    error_message = "Pub/Sub's service agent may not publish on every dead-letter topic."
  }

  assert {
    condition = alltrue([for key, s in google_pubsub_subscription.work :
      google_pubsub_subscription_iam_member.forward_from[key].subscription == s.id
      && google_pubsub_subscription_iam_member.forward_from[key].role == "roles/pubsub.subscriber"
      && google_pubsub_subscription_iam_member.forward_from[key].member == "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com"
    ])
    error_message = "Pub/Sub's service agent is not subscriber on every subscription that has a dead-letter topic."
  }
}
