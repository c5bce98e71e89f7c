# The functions: one archive, one function for each entry point. A test compares them with what is
# registered in Go.

locals {
  # The functions beside the lanes. What is left out is as function_defaults says; a function with a
  # route has the route's instances, concurrency and ack deadline.
  other_functions = {
    ingest = {
      entry_point = "Ingest"
      publishes   = ["lanes", "mailbox-resync"]
      gmail       = true
    }

    resync = {
      entry_point = "Resync"
      publishes   = ["mailbox-resync", "content"]
      gmail       = true
      memory      = "1Gi" # a whole mailbox's ids at once
    }

    digest-send = {
      entry_point = "DigestSend"
      publishes   = ["digest-send"]
      gmail       = true
      secrets     = ["connect_key", "alert_webhook"]
    }

    dead-letter = {
      entry_point = "DeadLetter"
      secrets     = ["alert_webhook"]
      instances   = local.monitor_delivery.instances
      concurrency = local.monitor_delivery.concurrency
      timeout     = local.monitor_delivery.ackDeadlineSeconds
    }

    # On a schedule. Where a run is still going when the next is due, one instance more takes that.
    tick = {
      entry_point = "Tick"
      publishes   = ["routes", "dead-letters"]
      inspects    = true
      gmail       = true
      secrets     = ["alert_webhook"]
      instances   = 2
    }

    renew = {
      entry_point = "Renew"
      publishes   = ["gmail-notifications"]
      gmail       = true
      secrets     = ["alert_webhook"]
      instances   = 2
      timeout     = 600
    }

    digest = {
      entry_point = "Digest"
      publishes   = ["digest-send"]
      instances   = 2
    }

    # For people.
    connect = {
      entry_point = "Connect"
      publishes   = ["mailbox-resync"]
      gmail       = true
      secrets     = ["connect_key"]
      public      = true
      instances   = 10
      concurrency = 20
    }

    unsubscribe = {
      entry_point = "Unsubscribe"
      secrets     = ["connect_key"]
      public      = true
      instances   = 10
      concurrency = 20
    }

    console = {
      entry_point = "Console"
      publishes   = ["routes", "dead-letters"]
      inspects    = true
      instances   = 2
      concurrency = 20
      timeout     = 300 # it stays open while somebody looks
    }
  }

  function_defaults = {
    publishes   = []    # topics, or one of the words of publish_words
    inspects    = false # whether it pulls from the -inspect subscriptions
    gmail       = false # whether it calls Gmail: then it has the OAuth client, and may unwrap the keyset
    secrets     = []    # what else it reads from Secret Manager
    public      = false # whether anybody may call it
    memory      = "512Mi"
    cpu         = 1
    concurrency = 1
    instances   = 1
    timeout     = 60
  }

  # A lane's function: what it does to a message says what it may do.
  lane_functions = {
    for key, l in local.lanes : key => {
      entry_point = l.entryPoint
      publishes   = ["mailbox-changes", "content"]
      gmail       = l.effect.kind == "fetch"
    }
  }

  # Where any lane asks for a message's content: the topic of the lane that fetches.
  content_topic = one([for key, l in local.lanes : "gmail-${key}" if l.effect.kind == "fetch"])

  publish_words = {
    content      = [local.content_topic]
    lanes        = [for key in keys(local.lanes) : local.routes[key].topic]
    routes       = [for r in local.routes : r.topic]
    dead-letters = [for r in local.routes : r.dead_letter_topic]
  }

  functions = {
    for key, f in merge(local.other_functions, local.lane_functions) : key => merge(
      local.function_defaults,
      contains(keys(local.routes), key) ? {
        instances   = local.deliveries[key].instances
        concurrency = local.deliveries[key].concurrency
        cpu         = local.deliveries[key].cpu
        timeout     = local.deliveries[key].ackDeadlineSeconds # no longer than Pub/Sub waits
      } : {},
      f,
    )
  }

  # What each function publishes on: what it is for, and its own dead letters.
  function_topics = {
    for key, f in local.functions : key => toset(concat(
      flatten([for p in f.publishes : lookup(local.publish_words, p, [p])]),
      contains(keys(local.routes), key) ? [local.routes[key].dead_letter_topic] : [],
    ))
  }

  # The OAuth client's secret and the keyset for who calls Gmail, what else is named, and of all that
  # only what there is.
  function_secrets = {
    for key, f in local.functions : key => toset([
      for s in concat(f.gmail ? ["oauth_client_secret", "keyset"] : [], f.secrets) : s if contains(keys(local.secrets), s)
    ])
  }

  # Every URL that a person is sent to is that of one of the two public functions, which answer at any
  # path below it.
  function_url = "https://${var.region}-${var.project}.cloudfunctions.net"
  public_urls = {
    connect     = coalesce(var.public_url, "${local.function_url}/connect")
    unsubscribe = coalesce(var.public_url, "${local.function_url}/unsubscribe")
    digest-send = coalesce(var.public_url, "${local.function_url}/unsubscribe")
  }

  environment = {
    GOOGLE_CLOUD_PROJECT = var.project
    FIRESTORE_DATABASE   = var.database
    MAILYARD_LANES       = join(",", sort(tolist(var.optional_lanes)))
    MAILYARD_CONTENT     = var.content
    # Cloud Run checks the push's token and cuts its signature off. Whom it admits is in identity.tf.
    MAILYARD_PUSH_AUTH            = "iam"
    MAILYARD_PUSH_SERVICE_ACCOUNT = local.push_account
  }

  gmail_environment = merge(
    {
      MAILYARD_OAUTH_CLIENT_ID = var.oauth_client_id
      MAILYARD_KMS_KEY         = "gcp-kms://${google_kms_crypto_key.keyset.id}"
    },
    var.delegation ? { MAILYARD_DELEGATION_SERVICE_ACCOUNT = google_service_account.delegation["gmail"].email } : {},
  )

  # Only some functions have more.
  own_environment = {
    connect     = { MAILYARD_CONNECT_ORIGINS = join(",", sort(tolist(var.connect_origins))) }
    digest      = { MAILYARD_DIGEST_SENDER = var.digest_sender, MAILYARD_DIGEST_ZONE = var.digest_zone }
    digest-send = { MAILYARD_DIGEST_SENDER = var.digest_sender, MAILYARD_DIGEST_ZONE = var.digest_zone }
  }

  function_uris = { for key, f in google_cloudfunctions2_function.function : key => f.service_config[0].uri }
}

resource "google_storage_bucket" "source" {
  project  = local.project_with["storage"]
  name     = "${var.project}-mailyard-source"
  location = var.region

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true # it holds what make package builds again
}

# The name says what is in it, so another source is another object, and each function is built anew then
# and only then.
resource "google_storage_bucket_object" "source" {
  bucket = google_storage_bucket.source.name
  name   = "functions-${substr(filesha256(var.archive), 0, 16)}.zip"
  source = var.archive

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_cloudfunctions2_function" "function" {
  for_each = local.functions

  project     = local.project_with["cloudfunctions"]
  location    = var.region
  name        = each.key
  description = "Mailyard's ${each.value.entry_point}"

  build_config {
    runtime         = "go126"
    entry_point     = each.value.entry_point
    service_account = google_service_account.build.id

    source {
      storage_source {
        bucket = google_storage_bucket.source.name
        object = google_storage_bucket_object.source.name
      }
    }
  }

  service_config {
    service_account_email            = google_service_account.function[each.key].email
    available_memory                 = each.value.memory
    available_cpu                    = tostring(each.value.cpu)
    timeout_seconds                  = each.value.timeout
    max_instance_count               = each.value.instances
    max_instance_request_concurrency = each.value.concurrency

    # Pub/Sub and Cloud Scheduler of this project count as internal; people do not.
    ingress_settings = each.value.public || each.key == "console" ? "ALLOW_ALL" : "ALLOW_INTERNAL_ONLY"

    environment_variables = merge(
      local.environment,
      each.value.gmail ? local.gmail_environment : {},
      contains(keys(local.public_urls), each.key) ? { MAILYARD_PUBLIC_URL = local.public_urls[each.key] } : {},
      lookup(local.own_environment, each.key, {}),
    )

    dynamic "secret_environment_variables" {
      for_each = local.function_secrets[each.key]

      content {
        key        = "MAILYARD_${upper(secret_environment_variables.value)}"
        project_id = var.project
        secret     = google_secret_manager_secret.secret[secret_environment_variables.value].secret_id
        version    = google_secret_manager_secret_version.secret[secret_environment_variables.value].version
      }
    }
  }

  # Without these the build fails, or Cloud Run refuses the revision.
  depends_on = [
    google_project_iam_member.build,
    google_secret_manager_secret_iam_member.function,
  ]

  lifecycle {
    precondition {
      condition     = each.value.concurrency == 1 || each.value.cpu >= 1
      error_message = "${each.key} has less than one CPU and more than one request at a time, which Cloud Run refuses: write cpu = 1 or more, or concurrency = 1."
    }

    precondition {
      condition     = length(each.key) <= 49
      error_message = "The lane ${each.key} has a key that is too long for a function's name: write at most 49 characters in the catalogue."
    }
  }
}
